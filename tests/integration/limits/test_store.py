"""What counts as an outage, where the loop has words of its own for it."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

import pytest
import uvloop
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from node.limits.store import Delivery, Store, load_script
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


async def test_what_our_own_loop_was_late_for_is_no_outage(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.limits.store.ANSWER_S", 0.2)

    stalls = iter([True])

    async def read_too_late_at_first(redis: Redis) -> bool:
        if next(stalls, False):
            asyncio.get_running_loop().call_soon(time.sleep, 0.5)
            return await asyncio.Future()
        return True

    async def have_no_answer(redis: Redis) -> bool:
        return await asyncio.Future()

    redis = connect_redis(redis_url)
    late, calm = Store(redis), Store(redis)
    assert await late.ask(read_too_late_at_first) is True
    assert not late.breaker.is_open
    monkeypatch.setattr("node.limits.heartbeat.LATE_S", 60)  # however busy this machine is
    assert await calm.ask(have_no_answer) is None
    assert calm.breaker.is_open
    await late.aclose()
    await calm.aclose()
    await redis.aclose()


async def test_what_was_missed_at_first_may_have_acted_whatever_redis_says_then(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.limits.store.ANSWER_S", 0.2)
    for stalls, may_have_acted in (([True], True), ([], False)):
        stall = iter(stalls)

        class Odd(Redis):
            async def evalsha(self, *arguments: object) -> list[object]:
                if next(stall, False):  # noqa: B023 - it is used up within this round
                    asyncio.get_running_loop().call_soon(time.sleep, 0.5)
                    return await asyncio.Future()
                raise ResponseError("OOM")

        redis, delivery = connect_redis(redis_url), Delivery()
        monkeypatch.setattr(redis, "client", lambda: Odd(connection_pool=redis.connection_pool))  # noqa: B023
        store = Store(redis)
        assert await store.run(load_script("rest"), ["k"], [], delivery) is None
        assert delivery.may_have_acted is may_have_acted
        await store.aclose()
        await redis.aclose()


async def test_a_loop_that_is_late_again_and_again_is_an_excuse_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.limits.store.ANSWER_S", 0.05)
    monkeypatch.setattr("node.limits.heartbeat.Heartbeat.was_late", lambda self: True)

    async def have_no_answer(redis: Redis) -> bool:
        return await asyncio.Future()

    redis = connect_redis(redis_url)
    store = Store(redis)
    asked = 0

    async def have_none_at_first(redis: Redis) -> bool:
        nonlocal asked
        asked += 1
        return True if asked > 3 else await have_no_answer(redis)

    assert await asyncio.gather(*(store.ask(have_none_at_first) for _ in range(3))) == [True] * 3
    assert (asked, store.breaker.is_open) == (6, False)
    asked = -10  # that there was an answer excuses anew
    assert await store.ask(have_none_at_first) is None
    assert (asked, store.breaker.is_open) == (-8, True)
    await store.aclose()
    await redis.aclose()
