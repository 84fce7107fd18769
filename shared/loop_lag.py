"""How late the event loop is, and how much is on it: what holds it holds every request of the process.

Decides how often it is looked at. Must not know what runs on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from prometheus_client import Gauge, Histogram, Metric
from prometheus_client.registry import Collector

from shared.tasks import in_background

LOOK_EVERY_S = 0.25
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class LoopLag(Collector):
    """Sleeps, and counts by how much it overslept, and the tasks that there are.

    Those are counted here and not when somebody asks: metrics are read in another thread, in which a loop's tasks
    change under whoever goes through them.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._lag = Histogram(
            "b3os_event_loop_lag_seconds",
            "By how much the event loop was late, four times a second.",
            registry=None,
            buckets=_BUCKETS_S,
        )
        self._tasks = Gauge("b3os_event_loop_tasks", "Tasks of the event loop, a moment ago.", registry=None)

    def collect(self) -> Iterator[Metric]:
        """What was seen so far."""
        yield from self._lag.collect()
        yield from self._tasks.collect()

    async def look(self) -> None:
        """Once."""
        self._tasks.set(len(asyncio.all_tasks()))
        began_s = self._clock()
        await self._sleep(LOOK_EVERY_S)
        self._lag.observe(max(0.0, self._clock() - began_s - LOOK_EVERY_S))

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look while the body runs."""
        async with in_background(self._look_forever()):
            yield

    async def _look_forever(self) -> None:
        while True:
            await self.look()
