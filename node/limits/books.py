"""Every bill gets booked: now, or from the spool as soon as Redis is back.

Decides when a bill is tried again and when it is dropped. Must not know what is billed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import assert_never

from node.limits.facts import Unreadable
from node.limits.limiter import (
    AlreadySettled,
    Amended,
    Booking,
    Limiter,
    Settled,
    Settlement,
    StillAlive,
    TooOld,
    Unavailable,
)
from node.limits.spool import Spool
from shared.tasks import in_background

RETRY_S = 0.5
_log = logging.getLogger("b3os.books")


class Books:
    """Books for one node."""

    def __init__(self, limiter: Limiter, spool: Spool, *, until_back: Callable[[], Awaitable[None]]) -> None:
        """`until_back` returns once it makes sense to try again."""
        self._limiter, self._spool, self._until_back = limiter, spool, until_back
        self._has_work = asyncio.Event()
        self._has_work.set()  # what an earlier process left
        self._unwritten: dict[str, Settlement] = {}

    async def book(self, settlement: Settlement) -> Booking:
        """Booked, or safe in the spool when this returns."""
        booking = await self._settle(settlement)
        if isinstance(booking, Unavailable):
            await self._keep(settlement)
        return booking

    @contextlib.asynccontextmanager
    async def replaying(self) -> AsyncIterator[None]:
        """Replay in the background while the body runs."""
        async with in_background(self._replay_forever()):
            yield

    async def replay(self) -> int:
        """Try everything that waits, once; return how many still do."""
        for settlement in list(self._unwritten.values()):
            if not isinstance(await self._settle(settlement), Unavailable):
                del self._unwritten[settlement.hold.subject.request_id]
        waiting = len(self._unwritten)
        for name in await asyncio.to_thread(self._spool.names):
            waiting += not await self._replay_one(name)
        return waiting

    async def _replay_one(self, name: str) -> bool:
        """Whether it is off the spool."""
        try:
            settlement = await asyncio.to_thread(self._spool.read, name)
        except Unreadable:
            _log.error("a spooled bill is unreadable and was set aside", extra={"facts": {"file": name}})
            await asyncio.to_thread(self._spool.set_aside, name)
            return True
        if settlement is None:
            return True
        booking = await self._settle(settlement)
        match booking:
            case Settled() | Amended() | AlreadySettled() | StillAlive():
                await asyncio.to_thread(self._spool.drop, name)
                return True
            case TooOld():
                _log.error("a spooled bill is too old and was set aside", extra={"facts": {"file": name}})
                await asyncio.to_thread(self._spool.set_aside, name)
                return True
            case Unavailable():
                return False
            case _:
                assert_never(booking)

    async def _replay_forever(self) -> None:
        while True:
            await self._has_work.wait()
            await self._until_back()
            self._has_work.clear()
            try:
                waiting = await self.replay()
            except Exception:
                _log.exception("the spool can't be replayed")
                waiting = 1
            if waiting:
                self._has_work.set()
                await asyncio.sleep(RETRY_S)

    async def _settle(self, settlement: Settlement) -> Booking:
        """A fault of ours is no reason to lose a bill either."""
        try:
            return await self._limiter.settle(settlement)
        except Exception:
            _log.exception("a bill failed")
            return Unavailable()

    async def _keep(self, settlement: Settlement) -> None:
        try:
            await asyncio.to_thread(self._spool.put, settlement)
        except OSError:
            # If this process dies too, a sweeper bills it to the last renewed count.
            _log.exception("the spool can't be written; the bill waits in memory")
            self._unwritten[settlement.hold.subject.request_id] = settlement
        self._has_work.set()
