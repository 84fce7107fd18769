"""Refused requests in the log, without a flood of them becoming a flood of writes.

Decides how many are written. Must not know why a request was refused. What is beyond the rate is not logged: refusing
has to stay cheap, and the newest of a flood tell as much as all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

from node.limits.limiter import Limiter
from shared.request_log import RequestRecord
from shared.tasks import in_background

MOST_PER_SECOND = 20
MOST_WAITING = 1000
_log = logging.getLogger("b3os.refusals")


class RefusalLog:
    """Takes records at once, and writes them behind the answer's back.

    Attributes:
        taken, left_out: how many there were of each fate.
    """

    def __init__(self, limiter: Limiter, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._limiter, self._clock_s = limiter, clock_s
        self._waiting: asyncio.Queue[tuple[str, RequestRecord]] = asyncio.Queue(MOST_WAITING)
        self._second = 0
        self._taken: Counter[str] = Counter()
        self.taken = self.left_out = 0

    def note(self, org: str, record: RequestRecord) -> bool:
        """Whether it will be written: up to `MOST_PER_SECOND` of an organization are."""
        second = int(self._clock_s())
        if second != self._second:
            self._second, self._taken = second, Counter()
        self._taken[org] += 1
        if self._taken[org] > MOST_PER_SECOND or self._waiting.full():
            self.left_out += 1
            return False
        self.taken += 1
        self._waiting.put_nowait((org, record))
        return True

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write in the background while the body runs."""
        async with in_background(self._write_forever()):
            yield

    async def _write_forever(self) -> None:
        while True:
            org, record = await self._waiting.get()
            try:
                await self._limiter.log_refusal(org, record)
            except Exception:
                _log.exception("a refusal can't be logged")
