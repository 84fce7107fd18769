"""vLLM 0.32 in this process, behind the engine's port. The only module that imports vllm.

Decides how a prompt is rendered, which sampling vLLM gets, and what its failures mean to a caller. Must not know the
wire. Its engine core is a process of its own; imports and starts happen in threads, off the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node.catalog.gpu import has_nvidia_gpu
from node.catalog.served import ServedModel
from node.engine.port import End, Piece, Prompt, Sampling, Started, Text, Usage
from shared.errors import BACKEND_UNAVAILABLE, INTERNAL, INVALID_REQUEST, PROMPT_TOO_LONG, ApiError

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

LEAST_TOP_P = 1e-9  # vLLM refuses 0; this keeps the likeliest token only
COUNTED_WINDOWS = 4
"""A prompt that doesn't fit is counted exactly up to so many windows; beyond that its length is a lower bound."""
_RETRY_AFTER_S = 5


async def start_vllm_engine(model: ServedModel) -> VllmEngine:
    """Load a model: 20 to 60 s on a CPU. The event loop goes on meanwhile."""
    engine = await asyncio.to_thread(_build, model)
    return VllmEngine(engine, model)


def _build(model: ServedModel) -> AsyncLLM:
    on_cpu = not has_nvidia_gpu()
    _set_environment(model, on_cpu=on_cpu)
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Quiet(StatLoggerBase):  # type: ignore[misc]
        """Present so that outputs carry their timings; records nothing yet."""

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            """Nothing to keep."""

        def record(self, *args: Any, **kwargs: Any) -> None:
            """Nothing to record."""

        def log_engine_initialized(self) -> None:
            """Nothing to say."""

    arguments = {**_engine_arguments(model, on_cpu=on_cpu), **model.engine}
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), stat_loggers=[Quiet])


def _set_environment(model: ServedModel, *, on_cpu: bool) -> None:
    """What vLLM reads from the environment; an operator's own values stay."""
    wanted = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    if Path(model.source).is_dir():
        wanted["HF_HUB_OFFLINE"] = "1"
    if on_cpu:  # measured: 17 s to start instead of 57, and the fastest decoding
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        wanted |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": str(cores),
            "VLLM_CPU_KVCACHE_SPACE": "1",
        }
    for name, value in wanted.items():
        os.environ.setdefault(name, value)


def _engine_arguments(model: ServedModel, *, on_cpu: bool) -> dict[str, Any]:
    arguments: dict[str, Any] = {"model": model.source, "disable_log_stats": True}
    if model.context_tokens is not None:
        arguments["max_model_len"] = model.context_tokens
    if model.reasoning_parser is not None:
        arguments["reasoning_parser"] = model.reasoning_parser
    if on_cpu:  # float32 prefills six times faster than bfloat16 without AMX
        arguments |= {"dtype": "float32", "enforce_eager": True, "max_num_seqs": 16}
        arguments["distributed_executor_backend"] = "uni"
    return arguments


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """vLLM's engine input."""

    engine_input: dict[str, Any]

    @property
    def prompt_tokens(self) -> int:
        """The length of the whole prompt."""
        return len(self.engine_input["prompt_token_ids"])


class VllmEngine:
    """A loaded model."""

    def __init__(self, engine: AsyncLLM, model: ServedModel) -> None:
        self._engine = engine
        self._template = None if model.chat_template is None else model.chat_template.read_text()
        self._defaults: dict[str, Any] = engine.model_config.get_diff_sampling_param()
        self.context_tokens: int = engine.model_config.max_model_len
        tokenizer = engine.renderer.get_tokenizer()
        self.special_tokens = frozenset(token.content for token in tokenizer.added_tokens_decoder.values())

    async def render(self, prompt: Prompt) -> RenderedPrompt:
        """Template and tokenize in the renderer's threads.

        Raises:
            ApiError: `PROMPT_TOO_LONG` or `INVALID_REQUEST`.
        """
        from vllm.exceptions import VLLMValidationError
        from vllm.renderers import ChatParams, TokenizeParams

        kwargs = {
            "enable_thinking": prompt.enable_thinking,
            "add_generation_prompt": not prompt.continues_last,
            "continue_final_message": prompt.continues_last,
            "tokenize": False,
        }
        limit = self.context_tokens * COUNTED_WINDOWS
        try:
            _, (engine_input,) = await self._engine.renderer.render_chat_async(
                [list(prompt.messages)],
                ChatParams(chat_template=self._template, chat_template_kwargs=kwargs),
                TokenizeParams(max_total_tokens=limit, add_special_tokens=False),
                prompt_extras=None if prompt.cache_salt is None else {"cache_salt": prompt.cache_salt},
            )
        except VLLMValidationError as error:
            if getattr(error, "parameter", None) in ("input_tokens", "input_text"):
                raise self._too_long(limit) from None
            raise ApiError(INVALID_REQUEST, "the messages can't be rendered by this model's template") from None
        rendered = RenderedPrompt(engine_input)
        if rendered.prompt_tokens >= self.context_tokens:
            raise self._too_long(rendered.prompt_tokens)
        return rendered

    def _too_long(self, tokens: int) -> ApiError:
        maximum = self.context_tokens - 1  # one token of the window is for the answer
        return ApiError(PROMPT_TOO_LONG, f"prompt is too long: {tokens} tokens > {maximum} maximum")

    def generate(self, rendered: RenderedPrompt, sampling: Sampling, request_id: str) -> VllmGeneration:
        """Start generating; `max_tokens` is capped to the room that is left."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        chosen = {
            "temperature": sampling.temperature,
            "top_p": None if sampling.top_p is None else max(sampling.top_p, LEAST_TOP_P),
            "top_k": sampling.top_k,
        }
        room = self.context_tokens - rendered.prompt_tokens
        parameters = SamplingParams(
            **{**self._defaults, **{name: value for name, value in chosen.items() if value is not None}},
            max_tokens=min(sampling.max_tokens, room),
            output_kind=RequestOutputKind.DELTA,
        )
        return VllmGeneration(
            self._engine.generate(rendered.engine_input, parameters, request_id), rendered.prompt_tokens
        )

    def unfinished_requests(self) -> int:
        """Requests that the engine holds right now."""
        return int(self._engine.output_processor.get_num_unfinished_requests())

    async def wait_until_dead(self) -> str:
        """Return once vLLM says that its core is gone."""
        while not self._engine.errored:  # noqa: ASYNC110  vLLM offers a flag and no event
            await asyncio.sleep(0.25)
        return "the engine core ended"

    async def shutdown(self) -> None:
        """End the core, 3 to 5 s, in a thread."""
        await asyncio.to_thread(self._engine.shutdown)


class VllmGeneration:
    """One running answer of vLLM's."""

    def __init__(self, outputs: AsyncGenerator[Any], prompt_tokens: int) -> None:
        self.usage = Usage(input_tokens=prompt_tokens)
        self._outputs = outputs
        self._pieces = self._read()

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._pieces

    async def aclose(self) -> None:
        """Abort in the core, unless the answer is complete. vLLM only notices a generator that is closed."""
        await self._pieces.aclose()
        await self._outputs.aclose()

    async def _read(self) -> AsyncGenerator[Piece]:
        from vllm.exceptions import GracefulHTTPError, VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError

        has_started = False
        try:
            async for output in self._outputs:
                completion = output.outputs[0]
                # A slow reader gets several tokens in one output: only their ids count them.
                self.usage.output_tokens += len(completion.token_ids)
                self.usage.cached_tokens = output.num_cached_tokens or 0
                if completion.finish_reason in ("abort", "error"):
                    raise _failure(completion.finish_reason)
                if not has_started:
                    has_started = True
                    yield _started(output.metrics)
                if completion.text:
                    yield Text(completion.text)
                if completion.finish_reason is not None:
                    yield End("length" if completion.finish_reason == "length" else "stop")
        except (EngineDeadError, GracefulHTTPError):
            raise _failure("abort") from None
        except VLLMClientError:
            raise ApiError(INVALID_REQUEST, "the model runtime refused these parameters") from None
        finally:
            await self._outputs.aclose()


def _failure(reason: str) -> ApiError:
    """What a caller hears when the engine ended an answer that nobody asked it to end."""
    if reason == "abort":
        message = f"The model runtime is restarting; retry in {_RETRY_AFTER_S} seconds"
        return ApiError(BACKEND_UNAVAILABLE, message, retry_after_s=_RETRY_AFTER_S)
    return ApiError(INTERNAL, "the model runtime failed on this request")


def _started(metrics: Any) -> Started:
    """Timings of the core, in milliseconds, where the output carries them."""
    if metrics is None or not metrics.scheduled_ts or not metrics.first_token_ts:
        return Started()
    return Started(
        queue_ms=(metrics.scheduled_ts - metrics.queued_ts) * 1000,
        prefill_ms=(metrics.first_token_ts - metrics.scheduled_ts) * 1000,
    )
