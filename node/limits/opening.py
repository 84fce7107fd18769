"""The limits of a node as a whole, from Redis to the desk.

Decides the order in which they start and end: what is being settled ends before what it needs. Must not know what is
asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from node.limits.counted import CountedBooks, CountedDesk, LimitCounts
from node.limits.redis_limiter import RedisLimiter
from node.limits.refusals import RefusalLog
from node.limits.settlement import Desk
from node.limits.spool_owner import owned_spool
from node.limits.store import Store
from node.limits.sweeper import Sweeper
from shared.redis import connect_redis
from shared.redis_durability import Durability


@asynccontextmanager
async def open_limits(
    redis_url: str, spool: Path, node_id: str, counts: LimitCounts | None = None
) -> AsyncIterator[tuple[Desk, RefusalLog]]:
    """Where requests are let in and paid for, and where refused ones are noted.

    Args:
        spool: the folder for bills that Redis could not take; this process's alone, then the next one's.
        counts: is told what happens.

    Raises:
        BadSpool: another process has the folder, or it can't be made.
        SettingsError: the URL has options that redis-py does not know.
    """
    with owned_spool(spool) as kept:
        redis = connect_redis(redis_url)
        store = Store(redis)
        limiter, counts = RedisLimiter(store), counts or LimitCounts()
        books = CountedBooks(limiter, kept, counts, until_back=store.breaker.wait_until_closed)
        desk, refusals, durability = CountedDesk(limiter, books, counts), RefusalLog(limiter), Durability(redis)
        counts.watch(store.breaker, kept, refusals, durability)
        try:
            async with (
                books.replaying(),
                Sweeper(store, limiter, node_id).sweeping(),
                refusals.writing(),
                durability.watching(),
            ):
                try:
                    yield desk, refusals
                finally:
                    await desk.aclose()
        finally:
            await store.aclose()
            await redis.aclose()
