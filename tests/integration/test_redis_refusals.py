"""What is told of a Redis that answers, and refuses: its own word, on both sides, and nothing else that it says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from edge.auth.cache import RecordCache
from edge.auth.invalidations import Invalidations
from edge.auth.key_store import RedisKeyStore
from edge.auth.store import StoreUnavailable
from edge.signing import create_key_files
from node.limits.names import SWEEPER
from node.limits.store import Store
from shared.redis import REFUSALS, cause_of, connect_redis, refusal_of
from shared.redis_durability import Durability
from tests.integration.edge.parts import until
from tests.integration.edge.test_process import Surroundings
from tests.redis_server import User, as_user, free_port, running_redis, url_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
SECRET = "not-the-password"
AWAY_AND_BACK = {
    "edge": ("registry is away", "registry is back"),
    "node": ("the registry does not hear", "the registry hears again"),
}


@pytest.fixture
def own_url(tmp_path: Path) -> Iterator[str]:
    with running_redis(tmp_path / "redis") as url:
        yield url


@pytest.fixture
async def operator(own_url: str) -> AsyncIterator[Redis]:
    """Who breaks it; what was denied is what a test wanted."""
    redis = connect_redis(as_user("operator", own_url))
    yield redis
    await command(redis, "ACL", "LOG", "RESET")
    await redis.aclose()


async def command(redis: Redis, *words: str) -> None:
    await cast("Any", redis).execute_command(*words)


def with_wrong_password(user: User, url: str) -> str:
    return as_user(user, url).replace(user * 8, SECRET)


def facts_of(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [getattr(record, "facts", {}) for record in caplog.records if record.message == message]


@contextlib.asynccontextmanager
async def refusing(words: str) -> AsyncIterator[Redis]:
    """A client of a server that says this to everything."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while (await reader.readline()).startswith(b"*"):
                writer.write(f"-{words}\r\n".encode())
            writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        redis = connect_redis(f"redis://127.0.0.1:{port}/0?protocol=2")
        try:
            yield redis
        finally:
            await redis.aclose()
            server.close()


async def failure_of(question: Any) -> BaseException:
    with pytest.raises(RedisError) as caught:
        await question
    return caught.value


@pytest.mark.parametrize("word", REFUSALS)
async def test_every_word_is_read_whatever_else_redis_says(word: str) -> None:
    async with refusing(f"{word} 3999 10.0.0.1:6379") as redis:
        assert cause_of(await failure_of(redis.ping())) == word


@pytest.mark.parametrize("words", ["ERR unknown command", "MISCONFIGURED it is", "WRONGTYPE of b3os:key:secret"])
async def test_other_words_are_told_as_the_kind_of_the_exception(words: str) -> None:
    async with refusing(words) as redis:
        error = await failure_of(redis.ping())
    assert refusal_of(error) is None
    assert cause_of(error) == "ResponseError"
    assert cause_of(ConnectionRefusedError("OOM at 10.0.0.1:6379")) == "ConnectionRefusedError"


async def test_a_real_redis_is_understood_in_scripts_and_in_commands_of_several(
    own_url: str, operator: Redis
) -> None:
    write = "return redis.call('SET', KEYS[1], 'x')"
    told: dict[tuple[str, object], str] = {}
    for name, value in (("maxmemory", "1"), ("min-replicas-to-write", "1")):
        await operator.config_set(name, value)
        for transaction in (True, False):
            async with operator.pipeline(transaction=transaction) as several:
                several.set("a", "b")
                told[name, transaction] = cause_of(await failure_of(several.execute()))
        told[name, "script"] = cause_of(await failure_of(operator.eval(write, 1, "a")))
        await operator.config_set(name, "0")
    await command(operator, "REPLICAOF", "127.0.0.1", str(free_port()))
    told["replica", "script"] = cause_of(await failure_of(operator.eval(write, 1, "a")))
    await command(operator, "REPLICAOF", "NO", "ONE")
    async with connect_redis(own_url) as node:
        told["right", "script"] = cause_of(await failure_of(node.eval(write, 1, "b3os:key:another's")))
    ways = (True, False, "script")
    assert told == {
        **{("maxmemory", way): "OOM" for way in ways},
        **{("min-replicas-to-write", way): "NOREPLICAS" for way in ways},
        ("replica", "script"): "READONLY",
        ("right", "script"): "NOPERM",
    }


@pytest.mark.parametrize("user", ["edge", "node"])
async def test_a_wrong_password_is_told_once_with_what_to_mend_and_again_after_it_was_right(
    own_url: str, operator: Redis, user: User, caplog: pytest.LogCaptureFixture
) -> None:
    own = connect_redis(with_wrong_password(user, own_url))
    eye = Durability(own)
    assert not await eye.look()
    assert not await eye.look()
    told = [{"cause": "WRONGPASS", "why": REFUSALS["WRONGPASS"]}]
    assert facts_of(caplog, "Redis refused") == told
    await operator.acl_setuser(user, enabled=True, passwords=[f"+{SECRET}"])
    assert await eye.look()
    await operator.acl_setuser(user, enabled=True, passwords=[f"-{SECRET}"])
    await command(operator, "CLIENT", "KILL", "USER", user)
    assert not await eye.look()
    assert facts_of(caplog, "Redis refused") == told * 2
    await own.aclose()


async def test_a_node_s_limits_tell_why_their_store_is_away_or_refuses(
    own_url: str, operator: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async def write(redis: Redis) -> bool:
        return bool(await redis.set(SWEEPER, "n1", px=1))

    async with connect_redis(with_wrong_password("node", own_url)) as redis:
        store = Store(redis)
        assert await store.ask(write) is None
        assert store.breaker.is_open
        await store.aclose()
    async with connect_redis(url_of("node", free_port())) as redis:
        store = Store(redis)
        assert await store.ask(write) is None
        await store.aclose()
    assert facts_of(caplog, "store is away") == [{"cause": "WRONGPASS"}, {"cause": "ConnectionError"}]
    await operator.config_set("maxmemory", "1")
    async with connect_redis(own_url) as redis:
        store = Store(redis)
        assert await store.ask(write) is None
        assert not store.breaker.is_open
        await store.aclose()
    await operator.config_set("maxmemory", "0")
    assert facts_of(caplog, "Redis refused") == [{"cause": "OOM"}]


async def test_an_edge_s_lookups_tell_why_also_while_nobody_asks_again(own_url: str, operator: Redis) -> None:
    del operator
    async with connect_redis(with_wrong_password("edge", own_url)) as redis:
        cache = RecordCache(RedisKeyStore(redis).fetch_key, lambda: 100.0)
        for _ in range(2):  # the second is not asked
            with pytest.raises(StoreUnavailable, match=r"^WRONGPASS$"):
                await cache.get("0" * 64)
        assert cache.reads == 1


async def test_a_channel_that_an_edge_may_not_hear_is_told_of_once(
    own_url: str, operator: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.auth.invalidations.RECONNECT_S", 0.001)
    caplog.set_level(logging.WARNING)
    await command(operator, "ACL", "SETUSER", "edge", "resetchannels")
    async with connect_redis(as_user("edge", own_url)) as redis, Invalidations(redis).following():
        await until(lambda: denied_twice(operator), 60)
    assert facts_of(caplog, "subscription lost") == [{"cause": "NOPERM"}]


async def denied_twice(operator: Redis) -> bool:
    log = cast("list[dict[str, int]]", await operator.acl_log())
    return sum([entry["count"] for entry in log]) > 1


@pytest.mark.parametrize("side", ["edge", "node"])
async def test_a_process_that_starts_with_a_wrong_password_says_so_and_goes_on(
    own_url: str, operator: Redis, tmp_path: Path, side: User
) -> None:
    create_key_files(tmp_path / "private.pem", tmp_path / "public.json")
    own = {
        "B3OS_HOME": str(tmp_path),
        "B3OS_REDIS_URL": with_wrong_password(side, own_url),
        "B3OS_EDGE_SIGNING_KEY_FILE": str(tmp_path / "private.pem"),
        "B3OS_NODE_EDGE_KEYS_FILE": str(tmp_path / "public.json"),
        "B3OS_NODE_ID": "n1",
        "B3OS_NODE_ENGINE": "scripted",
        "B3OS_EGRESS_NAMESERVERS": '["127.0.0.1:1"]',
        f"B3OS_{side.upper()}_PORT": str(free_port()),
        f"B3OS_{side.upper()}_OPERATOR_PORT": str(free_port()),
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("B3OS_")} | own
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", side), env=environ, cwd=Path(__file__).parents[2], stderr=asyncio.subprocess.PIPE
    )
    stderr, lines = process.stderr, list[dict[str, Any]]()
    assert stderr is not None

    async def hear(*messages: str) -> None:
        async with asyncio.timeout(60):
            while not {*messages} <= {line["message"] for line in lines}:
                said = await stderr.readline()
                assert said, lines
                assert SECRET.encode() not in said
                lines.append(json.loads(said))

    away, back = AWAY_AND_BACK[side]
    try:
        await hear("Redis refused", away)
        await operator.acl_setuser(side, enabled=True, passwords=[f"+{SECRET}"])
        await hear(back)
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0
    (refused,) = [line for line in lines if line["message"] == "Redis refused"]
    assert (refused["level"], refused["cause"]) == ("error", "WRONGPASS")
    assert refused["why"] == REFUSALS["WRONGPASS"]
    assert [line["cause"] for line in lines if line["message"] == away] == ["WRONGPASS"]


async def test_an_operator_s_command_says_with_what_word_redis_refused(
    own_url: str, operator: Redis, tmp_path: Path
) -> None:
    del operator
    here = Surroundings(tmp_path, with_wrong_password("edge", own_url))
    code, _, said = await here.run("admin", "list")
    assert (code, said) == (1, f"Error: Redis refused with WRONGPASS: {REFUSALS['WRONGPASS']}\n")


def test_every_word_is_in_the_operators_document() -> None:
    section = DOCUMENT.read_text().partition("### Where Redis refuses")[2].partition("\n#")[0]
    assert [word for word in REFUSALS if f"`{word}`" not in section] == []
