"""An engine's deltas to pieces: what is thinking and what is text.

Decides where the line breaks between the two go. Must not know vLLM: the parser that finds the markers is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from node.engine.port import Piece, Text, Thinking


class Split(Protocol):
    """Makes the pieces of one answer, delta by delta."""

    def __call__(self, text: str, token_ids: list[int], *, finished: bool) -> Iterator[Piece]: ...


class Delta(Protocol):
    """What a parser found in one delta."""

    reasoning: str | None
    content: str | None


class PlainText:
    """For models that don't think."""

    def __call__(self, text: str, token_ids: list[int], *, finished: bool) -> Iterator[Piece]:
        """The text as it is, unless it is empty."""
        if text:
            yield Text(text)


class ThinkingAndText:
    """For models that think first.

    The line breaks around the markers belong to the template and not to either side: thinking loses them at both
    ends, and so does the start of the text that follows it.

    Args:
        parse: takes the delta's text, its token ids, and whether it is the last.
    """

    def __init__(self, parse: Callable[[str, list[int], bool], Delta | None]) -> None:
        self._parse = parse
        self._breaks = ""  # after the thinking so far; part of it only if more thinking follows
        self._has_thought = False
        self._has_answered = False

    def __call__(self, text: str, token_ids: list[int], *, finished: bool) -> Iterator[Piece]:
        """What the parser makes of one delta; it may hold back what could be a marker's start."""
        delta = self._parse(text, token_ids, finished)
        if delta is None:
            return
        if delta.reasoning and (thought := self._inner(delta.reasoning)):
            yield Thinking(thought)
        if delta.content and (answer := self._outer(delta.content)):
            yield Text(answer)

    def _inner(self, reasoning: str) -> str:
        whole = self._breaks + reasoning if self._has_thought else reasoning.lstrip("\n")
        kept = whole.rstrip("\n")
        self._breaks = whole[len(kept) :]
        self._has_thought = self._has_thought or bool(kept)
        return kept

    def _outer(self, content: str) -> str:
        kept = content if self._has_answered or not self._has_thought else content.lstrip("\n")
        self._has_answered = self._has_answered or bool(kept)
        return kept
