"""Edges, nodes and a Redis of a test's own, each a process that may be killed, frozen and started again.

Decides how they are put together: every edge knows every node, and engines play scripts at a price.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import aiohttp
from redis.asyncio import Redis

from edge.signing import create_key_files
from shared.redis import connect_redis
from tests.e2e.money.wires import Wires
from tests.e2e.stack import ROOT, free_ports
from tests.redis_server import assert_nothing_was_denied, prepare, url_of, wait_until_up

INPUT_NANO_USD, OUTPUT_NANO_USD = 3, 10
WITHIN_S = 120.0
"""For all that comes about by itself: generous, since it is waited for only where something is broken."""
STOP_WITHIN_S = 60.0
FACTS_WITHIN_S = 30.0


@dataclass(slots=True)
class Part:
    """One process of the service; its output goes to the end of `log`."""

    name: str
    command: list[str]
    environ: Mapping[str, str]
    log: Path
    url: str = ""
    operator_url: str = ""
    wires: Wires | None = None
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """In a process group of its own, so that nothing of it is left behind."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command if self.wires is None else self.wires.enter(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.environ),
                cwd=ROOT,
                process_group=0,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Without a last word."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """It does nothing, and takes connections all the same."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """With SIGTERM, which it must obey, thawed or not; children go with it."""
        if self._process is None:
            return
        self.thaw()
        self.process.terminate()
        try:
            self.process.wait(STOP_WITHIN_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass(slots=True)
class Service:
    """All of them.

    Attributes:
        redis: the client of an operator, for what a test looks at.
        edge_redis: a client with an edge's rights.
    """

    home: Path
    store: Part
    redis_port: int
    nodes: list[Part]
    edges: list[Part]
    redis: Redis
    edge_redis: Redis
    http: aiohttp.ClientSession
    model: str = "b3os/scripted"
    more: list[Part] = field(default_factory=list)

    def parts(self) -> list[Part]:
        """All processes but Redis."""
        return [*self.nodes, *self.edges, *self.more]

    def node(self, name: str) -> Part:
        """The node of this id."""
        return next(node for node in (*self.nodes, *self.more) if node.name == name)

    def start_store(self) -> None:
        """Redis, with what it had on disk; it answers when this returns."""
        self.store.start()
        wait_until_up(url_of("operator", self.redis_port), self.store.process)

    async def facts(self, part: Part) -> tuple[int, dict[str, Any]]:
        """Status and body of its `/readyz`; 0 where nobody answers."""
        try:
            async with self.http.get(
                f"{part.operator_url}/readyz", timeout=aiohttp.ClientTimeout(FACTS_WITHIN_S)
            ) as answer:
                return answer.status, await answer.json()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, {}

    async def is_ready(self, part: Part) -> bool:
        """Whether it serves. An edge must follow its Redis, too, and know that it does."""
        status, facts = await self.facts(part)
        known = len(facts["nodes"]) if "nodes" in facts else len(facts.get("peers", ())) + 1
        knows_all = known >= len(self.nodes) or part in self.more
        return status == 200 and facts.get("invalidations", True) and facts.get("registry", True) and knows_all

    async def running(self) -> int:
        """Requests in the engines of all nodes."""
        told = [await self.facts(node) for node in (*self.nodes, *self.more) if node.is_alive]
        return sum(int(facts.get("running", 0)) for _, facts in told)

    async def heal(self) -> None:
        """Whatever a test did to it, it serves again when this returns."""
        if not self.store.is_alive:
            await asyncio.to_thread(self.start_store)
        for part in (self.store, *self.parts()):
            if part.is_alive:
                part.thaw()
            else:
                part.start()
        for part in (*self.nodes, *self.edges):
            await until(lambda part=part: self.is_ready(part), f"{part.name} is ready")  # type: ignore[misc]

    def spooled(self, node: Part | None = None) -> list[str]:
        """Files in the spool of one node, or of all: bills that wait, and what should never be there."""
        spool = self.home / "spool"
        return sorted(path.name for path in spool.glob("*/*" if node is None else f"{node.name}/*"))

    def _assert_that_redis_refused_nothing(self) -> None:
        """A script's fault is a 503 to callers, as if Redis were away; here it isn't one that may pass."""
        refused = [
            line
            for log in (self.home / "logs").glob("*.log")
            for line in log.read_text(errors="replace").splitlines()
            if '"Redis refused"' in line
        ]
        assert not refused, refused[:3]

    async def aclose(self) -> None:
        """Stop everything; Redis must have denied nothing."""
        try:
            for part in reversed(self.parts()):
                await asyncio.to_thread(part.stop)
            if self.store.is_alive:
                self.store.thaw()
                await asyncio.to_thread(assert_nothing_was_denied, url_of("operator", self.redis_port))
            self._assert_that_redis_refused_nothing()
        finally:
            for part in (*self.parts(), self.store):
                if part.is_alive:
                    part.stop()
            await self.http.close()
            await self.redis.aclose()
            await self.edge_redis.aclose()


async def until(is_so: Callable[[], Awaitable[object]], what: str, within_s: float = WITHIN_S) -> None:
    """Wait for what comes about by itself."""
    begun_s = time.monotonic()
    while not await is_so():
        assert time.monotonic() - begun_s < within_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.05)


class Plan:
    """Ports, files and variables of a service below a folder."""

    def __init__(self, home: Path, nodes: int, edges: int, drain_s: float = 1) -> None:
        self.home, self._drain_s = home, str(drain_s)
        ports = free_ports(nodes + edges + 1)
        self.redis_port, self.node_ports, self.edge_ports = ports[0], ports[1 : nodes + 1], ports[nodes + 1 :]
        (home / "logs").mkdir(parents=True, exist_ok=True)
        self.private, self.public = home / "keys" / "private.pem", home / "keys" / "public.json"
        create_key_files(self.private, self.public)

    def store(self, wires: Sequence[Wires] = ()) -> Part:
        """Redis, as `b3os dev` configures it; it listens at the ends of wires, too."""
        command = prepare(self.home / "redis", self.redis_port)
        if wires:
            command += ["--bind", "127.0.0.1", *(each.redis_host for each in wires)]
        return Part("redis", command, os.environ, self.home / "logs" / "redis.log")

    def node(self, name: str, port: int, wires: Wires | None = None, **settings: str) -> Part:
        """`settings` win."""
        host = "127.0.0.1" if wires is None else wires.address
        redis_host = "127.0.0.1" if wires is None else wires.redis_host
        usual = {
            "B3OS_NODE_HOST": host,
            "B3OS_NODE_OPERATOR_HOST": host,
            "B3OS_REDIS_URL": url_of("node", self.redis_port).replace("127.0.0.1", redis_host),
            "B3OS_NODE_ID": name,
            "B3OS_NODE_EDGE_KEYS_FILE": str(self.public),
            "B3OS_NODE_ENGINE": "scripted",
            "B3OS_NODE_DRAIN_S": self._drain_s,
            "B3OS_MODEL_INPUT_NANO_USD_PER_TOKEN": str(INPUT_NANO_USD),
            "B3OS_MODEL_OUTPUT_NANO_USD_PER_TOKEN": str(OUTPUT_NANO_USD),
            "B3OS_EGRESS_NAMESERVERS": '["127.0.0.1:1"]',
        }
        part = self._part("node", name, port, usual | settings, host)
        part.wires = wires
        return part

    def edge(self, name: str, port: int, nodes: Mapping[str, str], **settings: str) -> Part:
        """In front of these nodes. How an edge comes to know nodes is decided here alone."""
        usual = {
            "B3OS_EDGE_SIGNING_KEY_FILE": str(self.private),
            "B3OS_EDGE_NODES": json.dumps(nodes),
            "B3OS_EDGE_DRAIN_S": self._drain_s,
            "B3OS_EDGE_CHUNK_S": "600",  # a frozen node is silent for as long as a sweeper takes
        }
        return self._part("edge", name, port, usual | settings)

    def _part(
        self,
        side: Literal["edge", "node"],
        name: str,
        port: int,
        settings: Mapping[str, str],
        host: str = "127.0.0.1",
    ) -> Part:
        prefix = f"B3OS_{side.upper()}"
        kept = {word: value for word, value in os.environ.items() if not word.startswith("B3OS_")}
        own = {
            "B3OS_HOME": str(self.home),
            "B3OS_REDIS_URL": url_of(side, self.redis_port),
            f"{prefix}_PORT": str(port),
            f"{prefix}_OPERATOR_PORT": str(port + 1),
        }
        urls = f"http://{host}:{port}", f"http://{host}:{port + 1}"
        log = self.home / "logs" / f"{name}.log"
        return Part(name, [sys.executable, "-m", side], {**kept, **own, **settings}, log, *urls)


def _named(model: str | None) -> dict[str, str]:
    return {} if model is None else {"B3OS_MODEL_SERVED_ID": model}


@contextlib.asynccontextmanager
async def running_service(
    home: Path,
    *,
    nodes: int = 3,
    edges: int = 2,
    real: bool = False,
    drain_s: float = 1,
    served: Mapping[str, str] | None = None,
    wires: Sequence[Wires] = (),
    node_settings: Mapping[str, str] = MappingProxyType({}),
    edge_settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Service]:
    """A service that is ready; `real` starts one more node with a real engine, with an edge of its own, and doesn't
    wait for them. With `served`, which may say the model of each node, edges know nodes from the registry alone. With
    `wires`, one for each scripted node, nodes can be cut off.
    """
    plan = Plan(home, nodes + real, edges + real, drain_s)
    of_nodes: Sequence[Wires | None] = wires or [None] * nodes
    names = [f"n{number + 1}" for number in range(nodes)]
    scripted = [
        plan.node(name, port, wired, **_named((served or {}).get(name)), **node_settings)
        for name, port, wired in zip(names, plan.node_ports[:nodes], of_nodes, strict=True)
    ]
    urls = {node.name: node.url for node in scripted} if served is None else {}
    more = []
    if real:
        engine = {
            "B3OS_NODE_ENGINE": "vllm",
            "B3OS_NODE_ENGINE_SILENCE_S": "20",
            "B3OS_MODEL": str(ROOT / "tests" / "models" / "tiny-vision"),
        }
        node = plan.node(f"n{nodes + 1}", plan.node_ports[-1], None, **node_settings, **engine)
        more = [node, plan.edge("real", plan.edge_ports[-1], {node.name: node.url}, **edge_settings)]
    service = Service(
        home=home,
        store=plan.store(wires),
        redis_port=plan.redis_port,
        nodes=scripted,
        edges=[
            plan.edge(f"e{number + 1}", port, urls, **edge_settings)
            for number, port in enumerate(plan.edge_ports[:edges])
        ],
        more=more,
        redis=connect_redis(url_of("operator", plan.redis_port)),
        edge_redis=connect_redis(url_of("edge", plan.redis_port)),
        http=aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)),
    )
    try:
        await service.heal()
        yield service
    finally:
        await service.aclose()
