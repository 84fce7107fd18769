"""The phases of a request, and their `Server-Timing` header (W3C Server Timing).

Decides how phases are named, summed and written. Must not know what happens in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Phases:
    """Durations by name, in the order in which they first ended.

    Attributes:
        steps: name, beginning and end of each, by the clock; no beginning where only a duration was told.
    """

    __slots__ = ("_clock", "durations_ms", "started_at_s", "steps")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.started_at_s = clock()
        self.durations_ms: dict[str, float] = {}
        self.steps: list[tuple[str, float | None, float]] = []

    def elapsed_ms(self) -> float:
        """Milliseconds since the request head was read."""
        return (self._clock() - self.started_at_s) * 1000

    def add(self, name: str, duration_ms: float) -> None:
        """Add to a phase; a phase entered twice is the sum of both times."""
        self._note(name, duration_ms, None, self._clock())

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Time the body as phase `name`, also when it raises."""
        begun = self._clock()
        try:
            yield
        finally:
            ended = self._clock()
            self._note(name, (ended - begun) * 1000, begun, ended)

    def _note(self, name: str, duration_ms: float, begun_s: float | None, ended_s: float) -> None:
        self.durations_ms[name] = self.durations_ms.get(name, 0.0) + duration_ms
        self.steps.append((name, begun_s, ended_s))

    def header(self, *, upstream: str | None = None, with_total: bool) -> str:
        """Write the `Server-Timing` value: our phases, those of `upstream`, and `total` for a body of known size."""
        entries = [f"{name};dur={duration_ms:.2f}" for name, duration_ms in self.durations_ms.items()]
        if upstream:
            entries += [entry for part in upstream.split(",") if not (entry := part.strip()).startswith("total;")]
        if with_total:
            entries.append(f"total;dur={self.elapsed_ms():.2f}")
        return ", ".join(entries)
