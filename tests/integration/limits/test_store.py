"""What counts as an outage, where the loop has words of its own for it."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import uvloop
from redis.asyncio import Redis

from node.limits.store import Store
from shared.redis import connect_redis


def test_a_connection_that_ends_under_a_command_is_an_outage_in_uvloop_too(redis_url: str) -> None:
    async def write_too_late(redis: Redis) -> bool:
        del redis
        _, writer = await asyncio.open_connection(urlsplit(redis_url).hostname, urlsplit(redis_url).port)
        writer.transport.abort()
        await asyncio.sleep(0.01)
        writer.writelines([b"PING\r\n"])
        return True

    async def ask() -> None:
        redis = connect_redis(redis_url)
        store = Store(redis)
        assert await store.ask(write_too_late) is None
        assert store.breaker.is_open
        await store.breaker.wait_until_closed()
        await store.aclose()
        await redis.aclose()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask())
