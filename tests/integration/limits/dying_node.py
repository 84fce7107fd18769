"""A node's part of one request, to be killed: it lets a request in, tells its first tokens, says so, and goes on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from node.engine.port import Usage
from node.limits.books import Books
from node.limits.limiter import Limits, Needs, Subject
from node.limits.names import reservation_key
from node.limits.prices import Price
from node.limits.redis_limiter import RedisLimiter
from node.limits.settlement import Desk, Reservation
from node.limits.spool import Spool
from node.limits.store import Store
from shared.ids import new_request_id
from shared.redis import connect_redis


async def main(url: str, org: str, folder: str) -> None:
    """Never returns."""
    store = Store(connect_redis(url))
    limiter = RedisLimiter(store)
    books = Books(limiter, Spool(Path(folder)), until_back=store.breaker.wait_until_closed)
    desk = Desk(limiter, books, renew_every_s=0.05)
    subject = Subject(new_request_id(), org, "main", "key_1", "b3os/test", "n7", Price(3, 15), Limits())
    reservation = await desk.open(subject, Needs(500, 5000))
    assert isinstance(reservation, Reservation)
    async with reservation:
        reservation.follow(Usage(100, output_tokens=20, cached_tokens=64))
        reservation.note_prefilled()
        while await store.ask(lambda redis: redis.hget(reservation_key(org, subject.request_id), "output")) != "20":
            await asyncio.sleep(0.01)
        print(subject.request_id, flush=True)
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
