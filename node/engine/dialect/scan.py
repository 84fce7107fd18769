"""Markers in text that is still being written: where one stands, and what may yet become one.

Decides how little is held back. Must not know what the markers mean. A marker has its only `<` at its start, so that
the last `<` alone tells whether the end of a text may be the start of a marker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


class Markers:
    """A few words to find."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        self._search = re.compile("|".join(map(re.escape, words)) or r"(?!)").search
        self._reach = max(map(len, words), default=1) - 1

    def find(self, data: str, at: int) -> tuple[int, str] | None:
        """The first marker: where it begins, and which it is."""
        found = self._search(data, at)
        return (found.start(), found.group()) if found else None

    def hold_from(self, data: str, at: int) -> int:
        """Where the end of `data` begins that more text may make a marker of; its length, if nowhere."""
        start = data.rfind("<", max(at, len(data) - self._reach))
        if start >= 0 and _begins_one(data[start:], self._words):
            return start
        return len(data)


def word_at(data: str, at: int, words: Sequence[str]) -> str | None:
    """Which of some words stands at a place; `""` if more text is needed to say so, None if none of them does."""
    for word in words:
        if data.startswith(word, at):
            return word
    reach = max(map(len, words))
    return "" if len(data) - at < reach and _begins_one(data[at:], words) else None


def _begins_one(text: str, words: Sequence[str]) -> bool:
    return any(word.startswith(text) for word in words)
