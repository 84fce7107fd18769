"""A node's HTTP side on a real socket, with the scripted engine behind it and an edge's key in hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node.admission import Admission
from node.app import build_node_app
from node.card import build_card
from node.catalog.served import ServedModel
from node.engine.scripted import ScriptedEngine
from node.engine.supervisor import Supervisor
from node.forward import Forwarder
from node.gate import Gate
from node.images.intake import ImageIntake, open_intake
from node.limits.opening import open_limits
from node.peers import Peers
from node.settings import NodeSettings
from shared.http_server import ContractRunner
from shared.ids import new_request_id
from shared.node_hosts import PRIVATE, NodeHosts
from shared.node_token import Caller, SigningKey, mint
from shared.settings import load_settings
from shared.web import render_anthropic
from tests.redis_server import as_user

PATH = "/v1/infer/v1/messages"
KEY = SigningKey("k1", Ed25519PrivateKey.generate())
MODEL = ServedModel("b3os/scripted", "Scripted", "scripted", max_request_bytes=100_000)
HELD_S = 3600.0
"""How long a pause of a script says that it is, which a test ends (`Node.hold_pauses`)."""
CALLER = Caller("org_1", "prj_1", "key", "key_1", ("infer:run",), {}, None)


def node_token(path: str = PATH, method: str = "POST", request_id: str | None = None) -> str:
    """What an edge would send."""
    chosen = request_id or new_request_id()
    now_s = int(time.time())
    return mint(KEY, CALLER, audience=["n1"], request_id=chosen, method=method, path=path, now_s=now_s)


@dataclass(slots=True)
class Node:
    """A running node and a client of it."""

    url: str
    session: aiohttp.ClientSession
    supervisor: Supervisor
    images: ImageIntake
    peers: Peers
    redis_url: str
    engine: ScriptedEngine = field(init=False)
    answers: list[aiohttp.ClientResponse] = field(default_factory=list)

    def hold_pauses(self) -> asyncio.Event:
        """Pauses of `HELD_S` end with this event: what goes on meanwhile may take as long as it takes."""
        goes_on, rest = asyncio.Event(), self.engine.rest

        async def hold(seconds: float) -> None:
            if seconds != HELD_S:
                await rest(seconds)
            while seconds == HELD_S and not goes_on.is_set():
                await rest(0.01)

        self.engine.rest = hold  # type: ignore[method-assign]
        return goes_on

    async def post(self, script: list[Any] | str = "Hi", **fields: Any) -> aiohttp.ClientResponse:
        """Ask for the playing of a script."""
        text = script if isinstance(script, str) else json.dumps({"scripted": script})
        body = {"model": "b3os/scripted", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
        return await self.send(json.dumps(body | fields).encode())

    async def send(self, body: Any, **headers: str) -> aiohttp.ClientResponse:
        """Send bytes with a fresh token; headers win. Answers that nobody reads are closed with the session."""
        chosen = {"Authorization": f"Bearer {node_token()}", "Content-Type": "application/json"}
        answer = await self.session.post(self.url + PATH, data=body, headers=chosen | headers)
        self.answers.append(answer)
        return answer


Start = Callable[..., Awaitable[Node]]


@pytest.fixture
async def start_node(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Start nodes; `ping_after_s`, `factory`, `model` and `node_id` can be chosen. All end with the test."""
    monkeypatch.setattr("node.forward.CONNECT_S", 60)  # other nodes are in this process
    runners: list[web.AppRunner] = []
    held = AsyncExitStack()
    nodes: list[Node] = []

    async def start(
        *, ping_after_s: float = 10, factory: Any = None, model: ServedModel = MODEL, node_id: str = "n1"
    ) -> Node:
        engines: list[ScriptedEngine] = []

        async def scripted() -> ScriptedEngine:
            engines.append(ScriptedEngine())
            return engines[-1]

        supervisor = Supervisor(factory or scripted)
        gate = Gate(node_id, {"k1": KEY.private.public_key()})
        images = await held.enter_async_context(open_intake(load_settings(NodeSettings, {}, {}).egress))
        limits = await held.enter_async_context(
            open_limits(as_user("node", redis_url), tmp_path / "spool" / node_id, node_id)
        )
        peers = Peers(node_id, NodeHosts(PRIVATE), time.monotonic)
        app = build_node_app(
            node_id=node_id,
            peers=peers,
            forwarder=await held.enter_async_context(Forwarder.opened()),
            card=partial(build_card, model, supervisor, int(time.time())),
            model=model,
            gate=gate,
            admission=Admission(node_id, model, *limits),
            images=images,
            supervisor=supervisor,
            ping_after_s=ping_after_s,
        )
        runner = ContractRunner(app, render_anthropic)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        supervisor.start()
        node = Node(site.name, aiohttp.ClientSession(), supervisor, images, peers, as_user("operator", redis_url))
        nodes.append(node)
        if factory is None:
            while supervisor.state != "ready":
                await asyncio.sleep(0.001)
            node.engine = engines[0]
        return node

    yield start
    for node in nodes:
        for answer in node.answers:
            answer.close()
        await node.session.close()
        await node.supervisor.stop()
    for runner in runners:
        await runner.cleanup()
    await held.aclose()


@pytest.fixture
async def node(start_node: Start) -> Node:
    """A node as most tests want it."""
    return await start_node()
