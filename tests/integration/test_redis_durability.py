"""A Redis that may lose what it acknowledged is told of, by whom it is told of, once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from redis.asyncio import Redis

from shared.redis import connect_redis
from shared.redis_durability import Durability, list_risks
from tests.integration.edge.parts import until
from tests.integration.edge.test_process import Surroundings, is_ready
from tests.redis_server import User, as_user, free_port, running_redis, url_of

LINE = "redis may lose what it acknowledged"


@pytest.fixture
def own_url(tmp_path: Path) -> Iterator[str]:
    with running_redis(tmp_path) as url:
        yield url


def test_every_risk_has_a_name() -> None:
    assert list_risks({"aof_enabled": 1, "maxmemory_policy": "noeviction"}) == []
    told = list_risks({"aof_enabled": 0, "maxmemory_policy": "allkeys-lru"})
    assert told == ["appendonly is not yes", "maxmemory-policy is not noeviction"]


@pytest.mark.parametrize("user", ["edge", "node"])
async def test_each_side_may_ask_and_tells_once(own_url: str, user: User, caplog: pytest.LogCaptureFixture) -> None:
    operator, own = connect_redis(as_user("operator", own_url)), connect_redis(as_user(user, own_url))
    caplog.set_level(logging.WARNING)
    eye = Durability(own)
    assert await eye.look()
    assert (eye.risks, caplog.messages) == ([], [])
    await set_up(operator, "no", "allkeys-lru")
    assert await eye.look()
    assert await eye.look()
    assert len(eye.risks) == 2
    assert caplog.messages == [LINE]
    await set_up(operator, "no", "noeviction")
    assert await eye.look()
    assert eye.risks == ["appendonly is not yes"]
    assert caplog.messages == [LINE, LINE]  # since it is another state
    for redis in (operator, own):
        await redis.aclose()


async def set_up(operator: Redis, appendonly: str, policy: str) -> None:
    await operator.config_set("appendonly", appendonly)
    await operator.config_set("maxmemory-policy", policy)


async def test_whatever_becomes_of_one_look_another_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = iter([RuntimeError("uvloop's"), ZeroDivisionError("ours")])
    has_told = asyncio.Event()

    class Faulty:
        async def info(self, *_: str) -> dict[str, object]:
            for fault in faults:
                raise fault
            has_told.set()
            return {"aof_enabled": 1, "maxmemory_policy": "noeviction"}

    monkeypatch.setattr("shared.redis_durability._RETRY_S", 0)
    async with Durability(cast("Any", Faulty())).watching(), asyncio.timeout(30):
        await has_told.wait()


async def test_a_redis_that_is_not_there_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    redis = connect_redis(url_of("edge", free_port()))
    assert not await Durability(redis).look()
    assert caplog.messages == []
    await redis.aclose()


async def test_it_is_looked_for_at_the_start(own_url: str, caplog: pytest.LogCaptureFixture) -> None:
    operator, own = connect_redis(as_user("operator", own_url)), connect_redis(own_url)
    await set_up(operator, "no", "noeviction")
    eye = Durability(own)
    async with eye.watching(), asyncio.timeout(60):
        while not eye.risks:
            await asyncio.sleep(0.01)
    assert caplog.messages == [LINE]
    for redis in (operator, own):
        await redis.aclose()


async def test_an_edge_tells_it_in_its_log_and_its_readiness(own_url: str, tmp_path: Path) -> None:
    operator = connect_redis(as_user("operator", own_url))
    await set_up(operator, "yes", "allkeys-lru")
    await operator.aclose()
    here = Surroundings(tmp_path, as_user("edge", own_url))
    process = await here.start("edge")
    try:
        await until(lambda: is_ready(here), 60)
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://127.0.0.1:{here.operator_port}/readyz") as answer,
        ):
            assert (await answer.json())["redis_risks"] == ["maxmemory-policy is not noeviction"]
    finally:
        process.terminate()
        _, said = await process.communicate()
    assert said.decode().count(LINE) == 1
