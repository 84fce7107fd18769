"""What tokens cost, in whole nano-dollars.

Decides the arithmetic of the bill. Must not know where a count comes from. Integers only: floats lose cents silently.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_NANO_USD = 2**53 - 1
"""What Redis's Lua still compares exactly, 9 million dollars: more in one request is a mistake in the settings."""


@dataclass(frozen=True, slots=True)
class Price:
    """Nano-dollars for a token of the prompt, cached or not, and for one of the answer.

    Raises:
        ValueError: a price below nothing.
    """

    input_nano_usd: int = 0
    output_nano_usd: int = 0

    def __post_init__(self) -> None:
        if self.input_nano_usd < 0 or self.output_nano_usd < 0:
            raise ValueError("a price is negative")

    @property
    def version(self) -> str:
        """Its name in the ledger. Made of the prices themselves, so that one name never means two."""
        return f"in{self.input_nano_usd}-out{self.output_nano_usd}"

    def cost_nano_usd(self, input_tokens: int, output_tokens: int) -> int:
        """What these tokens cost.

        Raises:
            ValueError: a count is negative, or the cost beyond anything that is meant.
        """
        if input_tokens < 0 or output_tokens < 0:
            raise ValueError("a count of tokens is negative")
        cost = input_tokens * self.input_nano_usd + output_tokens * self.output_nano_usd
        if cost > MOST_NANO_USD:
            raise ValueError("a request can't cost that much: a price is wrong")
        return cost
