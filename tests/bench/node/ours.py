"""Our path: the node's own application on a canned engine."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node.admission import Admission
from node.app import build_node_app
from node.catalog.served import ServedModel
from node.engine.scheduler_watch import SchedulerWatch
from node.engine.supervisor import Supervisor
from node.engine.vllm_engine import VllmEngine
from node.gate import Gate
from node.images.intake import open_intake
from node.limits.opening import open_limits
from node.settings import NodeSettings
from shared.http_server import ContractRunner
from shared.ids import new_request_id
from shared.node_token import SigningKey
from shared.settings import load_settings
from shared.web import render_anthropic
from tests.bench.dev_stack import node_token
from tests.bench.node.canned_engine import CannedEngine
from tests.bench.node.null_transport import exchange
from tests.redis_server import running_redis

PATH = "/v1/infer/v1/messages"


class OurNode:
    """Made by `start`."""

    def __init__(
        self,
        engine: CannedEngine,
        runner: ContractRunner,
        supervisor: Supervisor,
        key: SigningKey,
        held: AsyncExitStack,
    ) -> None:
        self._engine, self._runner, self._supervisor, self._key = engine, runner, supervisor, key
        self._held = held

    @classmethod
    async def start(cls, engine: CannedEngine, model: ServedModel) -> OurNode:
        """As `node/__main__.py` does, without a port."""
        private = Ed25519PrivateKey.generate()

        async def make_engine() -> VllmEngine:
            return VllmEngine(cast("Any", engine), model, SchedulerWatch())

        supervisor = Supervisor(make_engine)
        gate = Gate("n1", {"k1": private.public_key()})
        held = AsyncExitStack()
        images = await held.enter_async_context(open_intake(load_settings(NodeSettings, {}, {}).egress))
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        redis_url = held.enter_context(running_redis(folder))
        limits = await held.enter_async_context(open_limits(redis_url, folder / "spool", "n1"))
        admission = Admission("n1", model, *limits)
        app = build_node_app(
            node_id="n1", model=model, gate=gate, admission=admission, images=images, supervisor=supervisor
        )
        runner = ContractRunner(app, render_anthropic)
        await runner.setup()
        supervisor.start()
        while supervisor.state != "ready":
            assert supervisor.state == "starting", "the engine did not start"
            await asyncio.sleep(0.01)
        return cls(engine, runner, supervisor, SigningKey("k1", private), held)

    async def answer(self, request: dict[str, Any]) -> tuple[float, bytes]:
        """CPU seconds from the first output to the last byte, and all bytes of the answer."""
        assert self._runner.server is not None
        credential = {"Authorization": f"Bearer {node_token(self._key, new_request_id(), 'POST', PATH)}"}
        ended_s, said = await exchange(self._runner.server(), PATH, credential, orjson.dumps(request))
        return ended_s - self._engine.began_s, said

    async def stop(self) -> None:
        """End what runs beside it."""
        await self._runner.cleanup()
        await self._supervisor.stop()
        await self._held.aclose()
