"""How an answer is shown while it arrives.

Decides that a terminal gets tamed words and dimmed thinking, and a pipe the answer alone, as the model wrote it. Must
not know where the words come from.
"""

from __future__ import annotations

from typing import TextIO

from shared.cli.user.console import DIM, RESET, has_colours, is_terminal, write
from shared.cli.user.text import tame
from shared.cli.user.transcript import Words


class Screen:
    """Shows words on a stream; `end` leaves it at the beginning of a line, in the colours it had."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._is_terminal = is_terminal(stream)
        self._dim, self._reset = (DIM, RESET) if has_colours(stream) else ("", "")
        self._kind: str | None = None
        self._ends_line = True

    def show(self, words: Words) -> None:
        """Show a piece at once."""
        if not words.text or (words.kind == "thinking" and not self._is_terminal):
            return
        if words.kind != self._kind:
            self._turn_to(words.kind)
        shown = tame(words.text) if self._is_terminal else words.text
        if shown:
            self._ends_line = shown.endswith("\n")  # first: an interruption may come out of the write
            write(self._stream, shown)

    def end(self) -> None:
        """Nothing more comes."""
        if self._kind == "thinking":
            write(self._stream, self._reset)
        if not self._ends_line:
            write(self._stream, "\n")
        self._kind, self._ends_line = None, True

    def _turn_to(self, kind: str) -> None:
        """Between thinking and answer stands an empty line; where nothing can be dimmed, a word says what it is."""
        if self._kind is not None:
            self.end()
            write(self._stream, "\n")
        self._kind = kind
        if kind == "thinking":
            write(self._stream, self._dim or "Thinking:\n")
