"""Work that would hold the event loop, done in threads in fair turn.

Decides how much of it is done at a time, and for whom. Must not know what the work is, nor how long it takes.

A thread holds the interpreter while it works, so that each more of them makes all else slower: they are few, and no
payer has all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from node.shares import Shares

THREADS, MOST_OF_ONE = 2, 1
T = TypeVar("T")


class SlowWork:
    """The threads of one node."""

    def __init__(self) -> None:
        self._shares = Shares(THREADS, MOST_OF_ONE)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="slow")

    async def run(self, work: Callable[[], T], payer: str, *, is_short: bool = False) -> T:
        """What comes of some work; what is short is done at once.

        Whoever gives up waiting gives up his turn. Work that has begun can't be ended, and keeps its place meanwhile.
        """
        if is_short:
            return work()
        await self._shares.acquire(payer)
        loop = asyncio.get_running_loop()

        def end(job: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended before the work, and nobody waits for a place
                loop.call_soon_threadsafe(self._shares.release, payer)

        job = self._threads.submit(work)
        job.add_done_callback(end)
        return await asyncio.wrap_future(job)
