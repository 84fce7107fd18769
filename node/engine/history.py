"""What earlier lives of the engine teach: how long to pause before the next, when it is expected, when to give up.

Decides these numbers. Must not know tasks or engines; its clock is passed in, in seconds.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STABLE_S = 60.0
"""A life that lasts so long was a good one: the next pause is a first one again."""
MOST_FAILURES = 5
"""Lives in a row without a single answer, starts that failed included. More, and it is not set up."""
GIVEN_UP_S = 300.0
"""A card may come back: so often it is tried all the same."""
FIRST_GUESS_S = 20.0
LONGEST_WAIT_S = 60
"""Agents give up at once where they are told to wait for longer."""
_OVERDUE_SHARE = 0.1


@dataclass(slots=True)
class History:
    """Of one node's engine, from one start to the next.

    Attributes:
        restarts: starts after the first.
        pause_s: how long to wait before the next start.
    """

    restarts: int = 0
    pause_s: float = FIRST_PAUSE_S
    _start_took_s: float = FIRST_GUESS_S
    _down_since_s: float = 0.0
    _begun_s: float | None = None
    _ready_s: float | None = None
    _pauses: int = 0
    _failures: int = 0

    @property
    def has_given_up(self) -> bool:
        """Whether it starts for nothing again and again."""
        return self._failures >= MOST_FAILURES

    def note_start(self, now_s: float) -> None:
        """A start begins."""
        if self._begun_s is None:
            self._down_since_s = now_s
        else:
            self.restarts += 1
        self._begun_s, self._ready_s = now_s, None

    def note_ready(self, now_s: float) -> None:
        """It takes requests."""
        self._ready_s = now_s
        self._start_took_s = now_s - (now_s if self._begun_s is None else self._begun_s)

    def note_end(self, now_s: float, *, has_answered: bool) -> None:
        """It died, or its start failed; `pause_s` is set."""
        lived_s = 0.0 if self._ready_s is None else now_s - self._ready_s
        self._down_since_s = now_s if self._ready_s is not None else self._down_since_s
        self._ready_s = None
        is_stable = lived_s >= STABLE_S
        self._failures = 0 if is_stable or has_answered else self._failures + 1
        self._pauses = 1 if is_stable else self._pauses + 1
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self._pauses - 1, 16), LONGEST_PAUSE_S)
        self.pause_s = GIVEN_UP_S if self.has_given_up else pause_s
        self._begun_s = now_s + self.pause_s

    def forecast_s(self, now_s: float) -> int:
        """`retry_after_s`, if it died now."""
        trial = copy(self)
        trial.note_end(now_s, has_answered=True)
        return trial.retry_after_s(now_s)

    def retry_after_s(self, now_s: float) -> int:
        """When to come back: the time that the last start took, less what has passed of this one."""
        if self.has_given_up:
            return int(GIVEN_UP_S)
        begun_s = now_s if self._begun_s is None else self._begun_s
        expected_s = begun_s + self._start_took_s - now_s
        overdue_s = (now_s - self._down_since_s) * _OVERDUE_SHARE if self._begun_s is not None else 0.0
        return max(1, min(LONGEST_WAIT_S, math.ceil(max(expected_s, overdue_s))))


@dataclass(slots=True)
class Watchdog:
    """Tells an engine that hangs from one that is idle or slow.

    Args:
        silence_s: how long an engine with requests may go without a step.
    """

    silence_s: float
    _steps: int = -1
    _since_s: float = 0.0

    def is_stuck(self, held: int, steps: int, now_s: float) -> bool:
        """To be asked again and again."""
        if held == 0 or steps != self._steps:
            self._steps, self._since_s = steps, now_s
        return now_s - self._since_s >= self.silence_s
