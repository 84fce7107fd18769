"""Whether this process's own event loop was late, so that a missed deadline says nothing of whom it waited for.

Decides how late is late. Must not know who waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

BEAT_S = 0.05
LATE_S = 0.2
LATELY_S = 1.5
"""As long as the longest deadline, and the beat that tells of a stall at its beginning."""


class Heartbeat:
    """Beats while the loop goes round."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._due_s: float | None = None
        self._late_until_s = 0.0
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, unless it beats already."""
        if self._next is None:
            self._wait()

    def was_late(self) -> bool:
        """Whether the loop stood still for a while, up to now or lately."""
        self._look()
        return self._clock_s() < self._late_until_s

    def stop(self) -> None:
        """Beat no more."""
        if self._next is not None:
            self._next.cancel()

    def beat(self) -> None:
        """It is time, or was."""
        self._look()
        self._wait()

    def _look(self) -> None:
        now_s = self._clock_s()
        if self._due_s is not None and now_s - self._due_s > LATE_S:
            self._late_until_s = now_s + LATELY_S

    def _wait(self) -> None:
        self._due_s = self._clock_s() + BEAT_S
        self._next = asyncio.get_running_loop().call_later(BEAT_S, self.beat)
