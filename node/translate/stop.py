"""Stop sequences on visible text, any number of them, whatever the chunking.

Decides which sequence ended an answer and how much text may be shown so far. An Aho-Corasick automaton, since its
state is just what is needed: the depth of a state is the length of the longest end of the text that could still
become a stop sequence, and nothing longer is ever held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _State:
    depth: int
    next: dict[str, _State] = field(default_factory=dict)
    fail: _State | None = None
    stop: str | None = None  # the longest stop sequence that ends here


class StopMatcher:
    """Feed text in pieces; the first sequence to be completed wins, the longest of those that end together."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._root = _State(0)
        for stop in stops:
            self._insert(stop)
        self._link()
        self._state = self._root
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Return the text that may be shown, and the stop sequence that was completed, if one was.

        After a match nothing more may be fed. The sequence itself is never part of the text.
        """
        data = self._held + text
        state = self._state
        for position in range(len(self._held), len(data)):
            state = self._step(state, data[position])
            if state.stop is not None:
                return data[: position + 1 - len(state.stop)], state.stop
        self._state = state
        shown = len(data) - state.depth
        self._held = data[shown:]
        return data[:shown], None

    def flush(self) -> str:
        """The text that was held back, once it can't become a stop sequence any more."""
        held, self._held, self._state = self._held, "", self._root
        return held

    def _insert(self, stop: str) -> None:
        state = self._root
        for character in stop:
            if character not in state.next:
                state.next[character] = _State(state.depth + 1)
            state = state.next[character]
        state.stop = stop

    def _link(self) -> None:
        queue = deque(self._root.next.values())
        while queue:
            state = queue.popleft()
            fail = state.fail or self._root
            state.stop = state.stop or fail.stop
            for character, child in state.next.items():
                child.fail = self._step(fail, character) if state is not self._root else self._root
                queue.append(child)

    def _step(self, state: _State, character: str) -> _State:
        current: _State | None = state
        while current is not None:
            if (found := current.next.get(character)) is not None:
                return found
            current = (current.fail or self._root) if current is not self._root else None
        return self._root
