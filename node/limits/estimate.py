"""How many tokens a request is let in for, before and after its prompt is rendered.

Decides the reservation. Must not know limits' state. Before rendering only the size is known, and a render of 10 MB
takes 0.4 s of a core: so what is reserved before it is a guess, and `adjust` makes it exact once the prompt is
counted.
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES_PER_TOKEN = 4
"""Of English text. Code has 3, so the guess is low for it: `adjust` asks for the rest, and may be refused."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Tokens of a prompt, and the most that its answer may have."""

    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """Together."""
        return self.input_tokens + self.output_tokens


NOTHING = Claim(0, 0)
"""Of what is free: to have a prompt counted."""
LEAST = Claim(1, 1)
"""Of any answer. Before a body is read it is all that is known, and whoever has not even that is refused unread."""


def exact_claim(prompt_tokens: int, max_tokens: int, context_tokens: int) -> Claim:
    """For a prompt that was counted. `max_tokens` beyond the window is capped, not refused (contract, "Agents")."""
    prompt = min(prompt_tokens, context_tokens)
    return Claim(prompt, min(max_tokens, context_tokens - prompt))


def estimated_claim(
    text_bytes: int, max_tokens: int, context_tokens: int, tokens_per_minute: int | None = None
) -> Claim:
    """For a prompt of which only the size is known: `text_bytes` of what becomes text, images left out.

    A guess never says that a request can't ever fit: where only the guessed part is too much, the claim is the whole
    limit, and the count decides.
    """
    guess = exact_claim(max(1, -(-text_bytes // BYTES_PER_TOKEN)), max_tokens, context_tokens)
    if tokens_per_minute is None or guess.tokens <= tokens_per_minute or guess.output_tokens >= tokens_per_minute:
        return guess
    return Claim(tokens_per_minute - guess.output_tokens, guess.output_tokens)
