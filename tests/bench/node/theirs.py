"""Their path: the application of vLLM's own server on a canned engine, in uvicorn's protocol as vLLM runs it."""

from __future__ import annotations

from typing import Any, cast

import orjson

from node.catalog.served import ServedModel
from tests.bench.node.canned_engine import CannedEngine
from tests.bench.node.null_transport import exchange
from tests.bench.node.servers import vllm_options

PATH = "/v1/messages"


class TheirServer:
    """Made by `start`."""

    def __init__(self, engine: CannedEngine, app: Any) -> None:
        from uvicorn import Config
        from uvicorn.server import ServerState

        self._engine, self._app, self._state = engine, app, ServerState()
        self._config = Config(app, log_config=None, access_log=False)
        self._config.load()

    @classmethod
    async def start(cls, engine: CannedEngine, model: ServedModel) -> TheirServer:
        """As vLLM's entry point does, without a port."""
        from vllm import AsyncEngineArgs
        from vllm.entrypoints.launchers.api_server.app_state import init_app_state
        from vllm.entrypoints.launchers.app import build_app
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(vllm_options(model))
        # Writes the reasoning parser to where the handlers look for it, as the engine's start does.
        AsyncEngineArgs.from_cli_args(arguments).create_structured_outputs_config()
        tasks = ("generate",)
        app = build_app(arguments, tasks, engine.model_config)
        await init_app_state(cast("Any", engine), app.state, arguments, tasks)
        return cls(engine, app)

    async def answer(self, request: dict[str, Any]) -> tuple[float, bytes]:
        """CPU seconds from the first output to the last byte, and all bytes of the answer."""
        protocol: Any = self._config.http_protocol_class
        connection = protocol(config=self._config, server_state=self._state, app_state={})
        ended_s, said = await exchange(connection, PATH, {}, orjson.dumps(request))
        return ended_s - self._engine.began_s, said
