"""Stop sequences on visible text, any number of them, whatever the chunking.

Decides which sequence ended an answer and how much text may be shown so far. An Aho-Corasick automaton, since its
state is just what is needed: the depth of a state is the length of the longest end of the text that could still
become a stop sequence, and nothing longer is ever held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_ROOT = 0
_CHARACTER_BITS = 21  # of a code point


class StopMatcher:
    """Feed text in pieces; the first sequence to be completed wins, the longest of those that end together."""

    def __init__(self, stops: Sequence[str]) -> None:
        # A state is a number. Flat, since a dictionary for each state would weigh twenty times as much.
        self._next: dict[int, int] = {}  # state and character to state
        self._depth = [0]
        self._fail = [_ROOT]
        self._stop: dict[int, str] = {}  # the longest stop sequence that ends in a state
        for stop in stops:
            self._insert(stop)
        self._link()
        self._state = _ROOT
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Return the text that may be shown, and the stop sequence that was completed, if one was.

        After a match nothing more may be fed. The sequence itself is never part of the text.
        """
        if not self._next:
            return text, None
        data = self._held + text
        state = self._state
        for position in range(len(self._held), len(data)):
            state = self._step(state, ord(data[position]))
            if (stop := self._stop.get(state)) is not None:
                return data[: position + 1 - len(stop)], stop
        self._state = state
        shown = len(data) - self._depth[state]
        self._held = data[shown:]
        return data[:shown], None

    def flush(self) -> str:
        """The text that was held back, once it can't become a stop sequence any more."""
        held, self._held, self._state = self._held, "", _ROOT
        return held

    def _insert(self, stop: str) -> None:
        state = _ROOT
        for character in stop:
            edge = state << _CHARACTER_BITS | ord(character)
            if edge not in self._next:
                self._next[edge] = len(self._depth)
                self._depth.append(self._depth[state] + 1)
                self._fail.append(_ROOT)
            state = self._next[edge]
        self._stop[state] = stop

    def _link(self) -> None:
        """Breadth first, so that the shorter ends that a state falls back to are linked before it."""
        children: dict[int, list[int]] = {}
        for edge in self._next:
            children.setdefault(edge >> _CHARACTER_BITS, []).append(edge)
        queue = deque(children.get(_ROOT, ()))
        while queue:
            edge = queue.popleft()
            parent, state = edge >> _CHARACTER_BITS, self._next[edge]
            if parent != _ROOT:
                self._fail[state] = self._step(self._fail[parent], edge & (1 << _CHARACTER_BITS) - 1)
            if state not in self._stop and (shorter := self._stop.get(self._fail[state])) is not None:
                self._stop[state] = shorter
            queue.extend(children.get(state, ()))

    def _step(self, state: int, character: int) -> int:
        while (found := self._next.get(state << _CHARACTER_BITS | character)) is None:
            if state == _ROOT:
                return _ROOT
            state = self._fail[state]
        return found
