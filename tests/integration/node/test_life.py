"""How a node begins and ends, as its operator sees it: processes of their own in a real registry."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from edge.signing import create_key_files
from node.hearing import ask_registry
from shared.heartbeat import NODES, Heartbeat, node_key
from shared.redis import connect_redis
from tests.e2e.stack import free_ports
from tests.redis_server import as_user

ROOT = Path(__file__).parents[3]
ID = "n-life"


@dataclass
class Machine:
    """Where a node may run; its process writes its log here."""

    home: Path
    redis_url: str
    registry: Redis
    port: int = field(default_factory=lambda: free_ports(1)[0])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """`python -m node` with a scripted engine."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("B3OS_")}
        create_key_files(self.home / "private.pem", self.home / "public.json")
        environ = kept | {
            "B3OS_HOME": str(self.home),
            "B3OS_REDIS_URL": as_user("node", self.redis_url),
            "B3OS_NODE_ID": ID,
            "B3OS_NODE_PORT": str(self.port),
            "B3OS_NODE_OPERATOR_PORT": str(self.port + 1),
            "B3OS_NODE_EDGE_KEYS_FILE": str(self.home / "public.json"),
            "B3OS_NODE_ENGINE": "scripted",
            "PYTHONPATH": str(ROOT),
        }
        with self.log.open("wb") as log:
            command = (sys.executable, "-m", "node")
            process = await asyncio.create_subprocess_exec(*command, env=environ, cwd=self.home, stderr=log)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    @property
    def log(self) -> Path:
        return self.home / "log"

    def lines(self, logger: str) -> list[dict[str, Any]]:
        """What this logger told."""
        found = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in found if line["logger"] == logger]

    async def told(self) -> Heartbeat | None:
        """What is told under the id."""
        return next(iter(await ask_registry(self.registry, [ID])), None)

    async def until_ready(self) -> Heartbeat:
        """What the node here tells, once it takes requests."""
        async with asyncio.timeout(60):
            while (told := await self.told()) is None or told.state != "ready" or told.url != self.url:
                await asyncio.sleep(0.05)
        return told


@pytest.fixture
async def registry(redis_url: str) -> AsyncIterator[Redis]:
    async with connect_redis(as_user("operator", redis_url)) as redis:
        yield redis
        await redis.delete(node_key(ID))
        await redis.srem(NODES, ID)


@pytest.fixture
def machine(tmp_path: Path, redis_url: str, registry: Redis) -> Machine:
    home = tmp_path / "here"
    home.mkdir()
    return Machine(home, redis_url, registry)


@pytest.fixture
def elsewhere(tmp_path: Path, redis_url: str, registry: Redis) -> Machine:
    """Another one, with a spool of its own."""
    home = tmp_path / "there"
    home.mkdir()
    return Machine(home, redis_url, registry)


async def ended(process: asyncio.subprocess.Process) -> int:
    """Its exit code."""
    async with asyncio.timeout(60):
        return await process.wait()


async def test_three_lines_tell_who_it_is_what_ended_it_and_what_it_cut(machine: Machine) -> None:
    async with machine.running() as process:
        told = await machine.until_ready()
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == 0
    started, stopping, stopped = machine.lines("b3os.life")
    assert {line["level"] for line in (started, stopping, stopped)} == {"info"}
    assert (started["message"], started["node"], started["boot"]) == ("started", ID, told.boot)
    assert (started["version"], started["model"], started["engine"]) == (version("b3os"), "b3os/scripted", "scripted")
    assert (started["listens"], started["told_url"]) == (machine.url, machine.url)
    assert started["operator_listens"] == f"http://127.0.0.1:{machine.port + 1}"
    assert (stopping["message"], stopping["signal"], stopping["under_way"]) == ("stopping", "SIGTERM", 0)
    assert stopping["within_s"] == 30
    assert (stopped["message"], stopped["cut"]) == ("stopped", 0)
    last = await machine.told()
    assert last is not None
    assert (last.state, last.boot) == ("stopped", told.boot)


async def test_a_second_node_of_an_id_does_not_start_and_the_first_goes_on(
    machine: Machine, elsewhere: Machine
) -> None:
    async with machine.running():
        first = await machine.until_ready()
        async with elsewhere.running() as second:
            assert await ended(second) == 1
        sentence = elsewhere.log.read_text().splitlines()[-1]
        assert sentence.startswith(f"b3os node: another node has the id {ID} ")
        assert machine.url in sentence
        assert elsewhere.url in sentence
        (line,) = elsewhere.lines("b3os.node.namesake")
        assert (line["level"], line["other_url"], line["own_url"]) == ("error", machine.url, elsewhere.url)
        assert elsewhere.lines("b3os.life") == []
        now = await machine.told()
        assert now is not None
        assert (now.boot, now.state) == (first.boot, "ready")
    assert machine.lines("b3os.node.namesake") == []


async def test_a_second_process_of_one_id_and_port_says_nothing_in_the_registry(
    machine: Machine, elsewhere: Machine
) -> None:
    elsewhere.port = machine.port
    async with machine.running():
        first = await machine.until_ready()
        async with elsewhere.running() as second:
            assert await ended(second) == 1
            now = await machine.told()
        assert "is already in use" in elsewhere.log.read_text().splitlines()[-1]
        assert now is not None
        assert (now.boot, now.state) == (first.boot, "ready")


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_a_node_that_comes_back_elsewhere_is_no_other(
    machine: Machine, elsewhere: Machine, *, is_killed: bool
) -> None:
    async with machine.running() as process:
        await machine.until_ready()
        process.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        await ended(process)
    async with elsewhere.running() as process:
        back = await elsewhere.until_ready()
        async with asyncio.timeout(60):  # it goes on telling
            while (now := await elsewhere.told()) is None or now.beat < back.beat + 2:
                await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == 0
    assert elsewhere.lines("b3os.node.namesake") == []
