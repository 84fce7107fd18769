"""What distinguishes one family of models from another in what it writes, and the one way to write it wrong.

Decides the vocabulary of this package. Must not know how anything is parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ToolFormat = Literal["hermes", "qwen3_coder"]

BLANK = " \t\r\n"
CALL = "<tool_call>"
CALL_END = "</tool_call>"
FUNCTION = "<function="

MOST_NAME_CHARS = 512
"""Of a function or a parameter. Names are held until they are complete, so they need a bound."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a model marks up its answers.

    Attributes:
        thinking: what opens and closes reasoning; None for models that don't reason.
        tools: how its calls look; None for models that call nothing.
    """

    thinking: tuple[str, str] | None = None
    tools: ToolFormat | None = None

    def __post_init__(self) -> None:
        # The scanner finds the last possible start of a marker by its first character.
        if any(not word.startswith("<") or "<" in word[1:] for word in self.thinking or ()):
            raise ValueError("a thinking marker begins with '<' and has no other")

    @property
    def thinks(self) -> bool:
        """Whether the model reasons before it answers."""
        return self.thinking is not None

    @property
    def call_begins(self) -> str | None:
        """What opens a call."""
        return None if self.tools is None else CALL

    @property
    def markers(self) -> tuple[str, ...]:
        """Every marker, among them those that tokenizers have tokens for."""
        return (*(self.thinking or ()), *(() if self.tools is None else (CALL, CALL_END)))


class BrokenCall(Exception):
    """The model wrote a tool call that can't be run, or ended inside one. The message never quotes the model."""


def not_json() -> BrokenCall:
    """A call whose JSON is malformed."""
    return BrokenCall("the model wrote a tool call that is not valid JSON")


def not_a_call() -> BrokenCall:
    """A call that lacks what a call has, or has something else."""
    return BrokenCall("the model wrote a tool call of a form that is none")


def unfinished() -> BrokenCall:
    """The model's own end came too early."""
    return BrokenCall("the model ended inside a tool call")
