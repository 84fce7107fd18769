"""A request to the chat messages that a template renders.

Decides the order, the joining and the safety of text. Must not know tokenizers or HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from node.engine.port import Prompt
from node.wire.request import Blocks, Message, MessagesRequest

BLOCK_SEPARATOR = "\n\n"
ZERO_WIDTH_SPACE = "\u200b"


class PromptBuilder:
    """Builds prompts for one model, whose special tokens must not be spelled by a caller's text."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        longest_first = sorted(filter(None, special_tokens), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def build_prompt(self, request: MessagesRequest, *, cache_salt: str | None = None) -> Prompt:
        """Messages in their order; a trailing assistant turn is continued, its trailing space kept."""
        turns: list[dict[str, str]] = []
        if request.system:
            turns.append({"role": "system", "content": self._text(request.system)})
        for message in request.messages:
            self._add(turns, message)
        return Prompt(
            messages=turns,
            enable_thinking=False,
            continues_last=request.messages[-1].role == "assistant",
            cache_salt=cache_salt,
        )

    def _add(self, turns: list[dict[str, str]], message: Message) -> None:
        """Turns of one side that follow each other are one turn, as Anthropic reads them.

        A system turn stays in its place, on the user's side: moved to the top it would change the prompt's head, and
        with it the whole prefix cache, and many templates refuse a second system turn.
        """
        role, text = message.role, self._text(message.content)
        if role == "system":
            role, text = "user", f"<system-reminder>\n{text}\n</system-reminder>"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += BLOCK_SEPARATOR + text
        else:
            turns.append({"role": role, "content": text})

    def _text(self, content: str | Blocks) -> str:
        joined = content if isinstance(content, str) else BLOCK_SEPARATOR.join(block.text for block in content)
        return self.neutralise(joined)

    def neutralise(self, text: str) -> str:
        """Break every special-token string with a zero-width space, so that text can't forge a turn."""
        if self._special is None:
            return text
        return self._special.sub(lambda found: found[0][0] + ZERO_WIDTH_SPACE + found[0][1:], text)
