"""Tells in the log when a process begins to serve, when it is told to stop, and how it ended.

Decides these three lines. Must not know what is served, nor what becomes of it meanwhile.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from importlib.metadata import version

_log = logging.getLogger("b3os.life")


class Life:
    """One process's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told_s = clock()

    def note_start(self, **facts: object) -> None:
        """It listens: whether it is ready yet, its operator port says."""
        _log.info("started", extra={"facts": {"version": version("b3os"), **facts}})

    def note_signal(self, number: signal.Signals, under_way: int, within_s: float) -> None:
        """It stops by itself, and lets the requests that are under way end for up to so many seconds."""
        self._told_s = self._clock()
        facts = {"signal": number.name, "under_way": under_way, "within_s": within_s}
        _log.info("stopping", extra={"facts": facts})

    def note_end(self, cut: int) -> None:
        """Nothing is left of it; `cut` requests were, in spite of the time that they had."""
        _log.info("stopped", extra={"facts": {"took_s": round(self._clock() - self._told_s, 3), "cut": cut}})
