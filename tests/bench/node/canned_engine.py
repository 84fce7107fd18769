"""What vLLM's server and our node use of an `AsyncLLM`, with canned outputs behind it.

Decides when the clock of a measurement starts: when the first output is asked for, so that receiving and rendering a
request are not in the figures.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

from node.catalog.served import ServedModel
from node.engine.vllm_setup import engine_arguments


class CannedEngine:
    """Plays `outputs` to whoever asks, and renders prompts like the real one."""

    errored = False

    def __init__(self, model: ServedModel) -> None:
        from vllm import AsyncEngineArgs
        from vllm.renderers import renderer_from_config

        self.vllm_config = AsyncEngineArgs(**engine_arguments(model, on_cpu=True)).create_engine_config()
        self.model_config = self.vllm_config.model_config
        self.renderer = renderer_from_config(self.vllm_config)
        self.input_processor = SimpleNamespace()  # kept and set, never called
        self.outputs: list[Any] = []
        self.began_s = 0.0

    async def generate(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        """All outputs, as fast as they are taken."""
        del args, kwargs
        self.began_s = time.process_time()
        for output in self.outputs:
            yield output

    def check_admission(self, sequences: int) -> None:
        """There is always room."""

    def get_num_unfinished_requests(self) -> int:
        """Nothing waits."""
        return 0

    def shutdown(self) -> None:
        """Nothing runs."""
