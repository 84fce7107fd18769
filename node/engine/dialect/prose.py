"""Thinking and text, and whose the white space around them is.

Decides which line breaks are the template's: thinking loses them at both ends, text loses them where it follows
thinking or a call; text before a call loses its trailing white space, and white space alone next to a call is no
text. Must not know markers. What may yet be dropped is held: white space only, in the chunks in which it came, so
that the cost of a piece doesn't depend on it.
"""

from __future__ import annotations

from node.engine.dialect.spec import BLANK
from node.engine.port import Piece, Text, Thinking


class Prose:
    """Makes the pieces that are no call.

    Args:
        may_call: a call may follow text. Otherwise all text passes at once.
    """

    def __init__(self, *, may_call: bool) -> None:
        self._may_call = may_call
        self._breaks: list[str] = []  # after the thinking so far; part of it only if more follows
        self._has_thought = False
        self._blanks: list[str] = []  # after the text so far, likewise
        self._at_edge = False  # text that comes now follows thinking or a call
        self._after_call = False  # no text since
        self._has_text = False

    def thinking(self, text: str) -> list[Piece]:
        """More reasoning."""
        if not self._has_thought:
            text = text.lstrip("\n")
            if not text:
                return []
            self._has_thought = True
        kept = text.rstrip("\n")
        if len(kept) == len(text) and not self._breaks:
            return [Thinking(text)]
        if not kept:
            self._breaks.append(text)
            return []
        whole = "".join(self._breaks) + kept
        self._breaks = [text[len(kept) :]] if len(kept) < len(text) else []
        return [Thinking(whole)]

    def end_thinking(self) -> None:
        """Text follows. Also for an end of thinking that never began, which is nothing where text is under way."""
        self._breaks = []
        self._at_edge = self._at_edge or not self._has_text

    def text(self, text: str) -> list[Piece]:
        """More of the visible answer."""
        if self._at_edge:
            text = text.lstrip("\n")
            if not text:
                return []
            self._at_edge = False
        if not self._may_call:
            self._has_text = True
            return [Text(text)]
        kept = text.rstrip(BLANK)
        if not kept:
            self._blanks.append(text)
            return []
        self._has_text, self._after_call = True, False
        if len(kept) == len(text) and not self._blanks:
            return [Text(text)]
        whole = "".join(self._blanks) + kept
        self._blanks = [text[len(kept) :]] if len(kept) < len(text) else []
        return [Text(whole)]

    def begin_call(self) -> None:
        """A call follows; so does, perhaps, more text."""
        self._breaks, self._blanks = [], []
        self._at_edge = self._after_call = True

    def end(self) -> list[Piece]:
        """The last of the text. White space at the end of an answer is the model's own."""
        if not self._blanks or self._after_call:
            return []
        return [Text("".join(self._blanks))]
