"""vLLM 0.32 in this process, behind the engine's port. The only module that imports vllm.

Decides how a prompt is rendered, which sampling vLLM gets, and what its failures mean to a caller. Must not know the
wire. Its engine core is a process of its own; imports and starts happen in threads, off the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import multiprocessing
import secrets
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from node.catalog.gpu import has_nvidia_gpu
from node.catalog.ready import check_ready
from node.catalog.served import ServedModel
from node.engine.dialect import Splitter
from node.engine.grammar_guard import GrammarGuard
from node.engine.markers import read_markers
from node.engine.port import ANY_SIDE_PX, EngineLoad, Guide, Piece, Prompt, Sampling, Started, Usage
from node.engine.remains import remove_remains, shared_memory_of
from node.engine.vllm_setup import engine_arguments, set_environment
from node.wire.faults import UNREADABLE
from shared.errors import BACKEND_UNAVAILABLE, INVALID_REQUEST, PROMPT_TOO_LONG, ApiError, retry_in

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

LEAST_TOP_P = 1e-9  # vLLM refuses 0; this keeps the likeliest token only
COUNTED_WINDOWS = 4
"""A prompt that doesn't fit is counted exactly up to so many windows; beyond that its length is a lower bound.

vLLM refuses more characters than so many tokens could hold before it tokenizes, so this bounds the work as well.
"""
_DEATH_POLL_S = 0.25
_RETRY_AFTER_S = 5
_CORE = "EngineCore"
_REMEMBERING = ("vllm.transformers_utils.", "vllm.tokenizers.", "vllm.renderers.", "vllm.multimodal.", "vllm.utils.")
"""Modules of vLLM's that keep tokenizers and processors of engines that are gone."""
_BUSY_RETRY_AFTER_S = 1
_GRAMMARS = "xgrammar"
_NEVER = -100.0  # the least bias that vLLM takes
_WIRE_NAMES = frozenset({"max_tokens", "temperature", "top_p", "top_k"})


async def start_vllm_engine(model: ServedModel) -> VllmEngine:
    """Load a model: 15 to 60 s on a CPU. The event loop goes on meanwhile.

    Raises:
        ModelNotReady: nothing is there to be loaded.
    """
    # On its own: what fails in an import is kept somewhere with the frames that led to it, and the engine with them.
    await asyncio.to_thread(_import_vllm, model)
    building = asyncio.create_task(asyncio.to_thread(_build, model))
    try:
        engine = await asyncio.shield(building)
    except asyncio.CancelledError:
        await _abandon(building)
        raise
    engine.warm_up()
    return engine


async def _abandon(building: asyncio.Task[VllmEngine]) -> None:
    """A thread can't be interrupted, but it gives up once its core is gone."""
    while not building.done():
        _kill(process for process in multiprocessing.active_children() if process.name.startswith(_CORE))
        await asyncio.wait({building}, timeout=0.2)
    if building.exception() is None:
        await building.result().shutdown()


def _import_vllm(model: ServedModel) -> None:
    check_ready(model)
    set_environment(model, on_cpu=not has_nvidia_gpu())
    import vllm.v1.engine.async_llm
    import vllm.v1.metrics.loggers  # noqa: F401


def _build(model: ServedModel) -> VllmEngine:
    from vllm import AsyncEngineArgs
    from vllm.config import StructuredOutputsConfig
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    # The default backend may change with the first schema that it sees, and then enforces others no more.
    grammars = StructuredOutputsConfig(backend=_GRAMMARS, disable_any_whitespace=True)
    arguments = {"structured_outputs_config": grammars, **engine_arguments(model, on_cpu=not has_nvidia_gpu())}
    # Of a server: vLLM's defaults for batches on a GPU go by it.
    context = UsageContext.OPENAI_API_SERVER
    meter = StepMeter()
    loggers = [_logger_for(meter)]
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), usage_context=context, stat_loggers=loggers)
    return VllmEngine(engine, model, meter)


@dataclass(slots=True)
class StepMeter:
    """What the cores told after their last steps. There are several with data parallelism.

    Attributes:
        steps: in all.
    """

    steps: int = 0
    _running: dict[int, int] = field(default_factory=dict)
    _cache_usage: dict[int, float] = field(default_factory=dict)

    def note(self, core: int, running: int, cache_usage: float) -> None:
        """A step was made."""
        self.steps += 1
        self._running[core], self._cache_usage[core] = running, cache_usage

    def running(self) -> int:
        """Requests that were computed in the last steps."""
        return sum(self._running.values())

    def cache_usage(self) -> float | None:
        """Of the fullest."""
        return max(self._cache_usage.values(), default=None)


def _logger_for(meter: StepMeter) -> Any:
    """A logger of vLLM's that fills a meter. With any, outputs carry their timings."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class StepLogger(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            """Nothing to keep."""

        def record(self, scheduler_stats: Any, *args: Any, engine_idx: int = 0, **kwargs: Any) -> None:
            if scheduler_stats is not None:
                meter.note(engine_idx, scheduler_stats.num_running_reqs, scheduler_stats.kv_cache_usage)

        def log_engine_initialized(self) -> None:
            """Nothing to say."""

    return StepLogger


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """vLLM's engine input, whether the answer begins with thinking, and whether the model was shown tools."""

    engine_input: dict[str, Any]
    thinking: bool
    has_tools: bool

    @property
    def token_ids(self) -> list[int]:
        """The whole prompt."""
        ids: list[int] = self.engine_input["prompt_token_ids"]
        return ids

    @property
    def prompt_tokens(self) -> int:
        """The length of the whole prompt."""
        return len(self.token_ids)


class VllmEngine:
    """A loaded model."""

    def __init__(self, engine: AsyncLLM, model: ServedModel, meter: StepMeter) -> None:
        self._engine, self._meter = engine, meter
        self._answers = 0
        self.back_in_s: Callable[[], int] = lambda: _RETRY_AFTER_S
        self._cores = _cores_of(engine)
        self._shared_memory = shared_memory_of(self._cores)
        self._template = None if model.chat_template is None else model.chat_template.read_text()
        self._defaults: dict[str, Any] = engine.model_config.get_diff_sampling_param()
        self.context_tokens: int = engine.model_config.max_model_len
        tokenizer = engine.renderer.get_tokenizer()
        self.special_tokens = frozenset(token.content for token in tokenizer.added_tokens_decoder.values())
        self.max_image_side_px = _max_image_side_px(engine.model_config)
        self._markers = read_markers(model, tokenizer)
        self._thinks = self._markers.dialect.thinks
        self.takes_tools = self._markers.dialect.tools is not None
        self._guard = GrammarGuard(model.source, engine.model_config.get_vocab_size())
        # vLLM would look at every grammar again, on the event loop. The guard has, in a process of its own.
        engine.input_processor.structured_outputs_config = None

    def warm_up(self) -> None:
        """Have the guard's process started before the first grammar waits for it; nobody waits for this."""
        self._warming = asyncio.create_task(self._guard.start())
        self._warming.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def render(self, prompt: Prompt) -> RenderedPrompt:
        """Template and tokenize in the renderer's threads.

        Raises:
            ApiError: `PROMPT_TOO_LONG` or `INVALID_REQUEST`.
        """
        from vllm.exceptions import VLLMValidationError
        from vllm.renderers import ChatParams, TokenizeParams

        # The start of an answer is text: a parser that expects thinking would take what follows for more of it.
        thinking = prompt.enable_thinking and not prompt.continues_last
        kwargs: dict[str, Any] = {
            "enable_thinking": thinking,
            "add_generation_prompt": not prompt.continues_last,
            "continue_final_message": prompt.continues_last,
            "tokenize": False,
        }
        if prompt.tools:
            kwargs["tools"] = list(prompt.tools)
        limit = self.context_tokens * COUNTED_WINDOWS
        messages, pictures = await asyncio.to_thread(_with_pictures, prompt)
        try:
            _, (engine_input,) = await self._engine.renderer.render_chat_async(
                [messages],
                ChatParams(chat_template=self._template, chat_template_kwargs=kwargs),
                TokenizeParams(max_total_tokens=limit, add_special_tokens=False),
                prompt_extras=None if prompt.cache_salt is None else {"cache_salt": prompt.cache_salt},
                # Else vLLM takes it that the core has had whatever was rendered: after a count, or a refusal, the
                # next request with the same image would fail for want of it.
                skip_mm_cache=True,
            )
        except VLLMValidationError as error:
            if error.parameter in ("input_tokens", "input_text"):
                raise self._too_long(limit + 1) from None
            raise ApiError(INVALID_REQUEST, "the messages can't be rendered by this model's template") from None
        except ValueError:  # what processors of images raise, for a line of pixels for instance
            if not pictures:
                raise
            which = "this image" if pictures == 1 else "these images"
            text = f"messages: {UNREADABLE}: the model can't take {which}"
            raise ApiError(INVALID_REQUEST, text, param="messages") from None
        rendered = RenderedPrompt(engine_input, thinking and self._thinks, bool(prompt.tools))
        if rendered.prompt_tokens >= self.context_tokens:
            raise self._too_long(rendered.prompt_tokens)
        return rendered

    def _too_long(self, tokens: int) -> ApiError:
        maximum = self.context_tokens - 1  # one token of the window is for the answer
        return ApiError(PROMPT_TOO_LONG, f"prompt is too long: {tokens} tokens > {maximum} maximum")

    async def check_guide(self, rendered: RenderedPrompt, guide: Guide) -> None:
        """Have its grammar made in a process that can be killed, the first time that it is asked for.

        Raises:
            ApiError: it can't be made, or not within bounds; `param` is the schema to blame.
        """
        await self._tag(rendered, guide)

    async def _tag(self, rendered: RenderedPrompt, guide: Guide) -> str | None:
        payer = str(rendered.engine_input.get("cache_salt"))  # one for each organization
        return await self._guard.tag(guide, self._markers.dialect, thinks=rendered.thinking, payer=payer)

    def generate(self, rendered: RenderedPrompt, guide: Guide, sampling: Sampling, request_id: str) -> VllmGeneration:
        """Start generating; `max_tokens` is capped to the room that is left.

        Raises:
            ApiError: `INVALID_REQUEST`, when vLLM refuses a value. All else comes when iterating.
        """
        with _told(self.gone):
            parameters = self._sampling(rendered, guide, sampling)
        splitter = Splitter(
            dialect=self._markers.dialect,
            begins_thinking=rendered.thinking,
            tools=guide.tools,
            one_call=guide.one_call,
            new_call_id=_new_call_id,
        )
        outputs = self._outputs(rendered, guide, parameters, request_id)
        return VllmGeneration(self, outputs, splitter, rendered.prompt_tokens)

    def _sampling(self, rendered: RenderedPrompt, guide: Guide, sampling: Sampling) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        max_tokens = min(sampling.max_tokens, self.context_tokens - rendered.prompt_tokens)
        chosen = {
            "temperature": sampling.temperature,
            "top_p": None if sampling.top_p is None else max(sampling.top_p, LEAST_TOP_P),
            "top_k": sampling.top_k,
            "max_tokens": max_tokens,
            "output_kind": RequestOutputKind.DELTA,
        }
        if rendered.thinking and guide.thinking_budget_tokens is not None:
            # Where the window holds less than was asked for, thinking gets its share of what there is.
            share = guide.thinking_budget_tokens * max_tokens // sampling.max_tokens
            chosen["thinking_token_budget"] = min(guide.thinking_budget_tokens, share)
        if rendered.has_tools and not guide.tools and self._markers.call_ids:
            chosen["logit_bias"] = dict.fromkeys(self._markers.call_ids, _NEVER)
        parameters = SamplingParams(
            **{**self._defaults, **{name: value for name, value in chosen.items() if value is not None}}
        )
        parameters.skip_special_tokens = not self._markers.are_special
        return parameters

    async def _outputs(
        self, rendered: RenderedPrompt, guide: Guide, parameters: Any, request_id: str
    ) -> AsyncGenerator[Any]:
        tag = await self._tag(rendered, guide)
        if tag is not None:
            _add_grammar(parameters, tag)
        reasoning: dict[str, Any] = {}
        if self._markers.dialect.thinks:
            reasoning = {
                # A grammar covers the thinking too, so that it is in force from the first token.
                "reasoning_ended": tag is not None or not rendered.thinking,
                "reasoning_parser_kwargs": {"chat_template_kwargs": {"enable_thinking": rendered.thinking}},
            }
        outputs = self._engine.generate(rendered.engine_input, parameters, request_id, **reasoning)
        try:
            async for output in outputs:
                yield output
        finally:
            await outputs.aclose()  # vLLM only notices a generator that is closed

    def unfinished_requests(self) -> int:
        """Requests that the engine holds right now."""
        return int(self._engine.get_num_unfinished_requests())

    def load(self) -> EngineLoad:
        """What the last step told; whom no step has told of yet waits."""
        held = self.unfinished_requests()
        running = min(self._meter.running(), held)
        return EngineLoad(running, held - running, self._meter.cache_usage(), self._meter.steps, self._answers)

    def count_answer(self) -> None:
        """One has begun."""
        self._answers += 1

    def gone(self) -> ApiError:
        """What the requests hear that it held."""
        return _unavailable("is restarting", self.back_in_s())

    async def wait_until_dead(self) -> str:
        """Return once vLLM says that its core is gone."""
        while not self._engine.errored:  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(_DEATH_POLL_S)
        return "the engine core ended"

    async def kill(self) -> None:
        """Kill the core, and whatever it started."""
        self._shared_memory |= shared_memory_of(self._cores)
        await asyncio.to_thread(_kill, self._cores)

    async def shutdown(self) -> None:
        """End the core, 3 to 5 s, in a thread; leave nothing of it behind."""
        await self._guard.close()
        await asyncio.to_thread(self._engine.shutdown)
        remove_remains(self._shared_memory)
        _forget_models()


def _cores_of(engine: AsyncLLM) -> list[BaseProcess]:
    """The processes that compute, where vLLM runs them itself."""
    manager = getattr(getattr(getattr(engine, "engine_core", None), "resources", None), "engine_manager", None)
    return list(getattr(manager, "processes", ()))


def _kill(processes: Iterable[BaseProcess]) -> None:
    from vllm.utils.system_utils import kill_process_tree

    for process in processes:
        if process.is_alive() and process.pid is not None:  # else the number may be another's by now
            kill_process_tree(process.pid)


def _forget_models() -> None:
    """Empty what vLLM remembers by tokenizer: of each engine that ever was, 4 MB for a tiny vocabulary."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_REMEMBERING):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):  # noqa: SLF001 - it has no public name
                    value.cache_clear()


class VllmGeneration:
    """One running answer of vLLM's.

    Args:
        outputs: vLLM's deltas. splitter: makes pieces of their text.
    """

    def __init__(
        self, engine: VllmEngine, outputs: AsyncGenerator[Any], splitter: Splitter, prompt_tokens: int
    ) -> None:
        self.usage = Usage(input_tokens=prompt_tokens)
        self._engine, self._outputs = engine, outputs
        self._pieces = self._read(splitter)

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._pieces

    async def aclose(self) -> None:
        """Abort in the core, unless the answer is complete."""
        await self._pieces.aclose()
        await self._outputs.aclose()

    async def _read(self, splitter: Splitter) -> AsyncGenerator[Piece]:
        has_started = False
        with _told(self._engine.gone):
            try:
                async for output in self._outputs:
                    completion = output.outputs[0]
                    reason = completion.finish_reason
                    # A slow reader gets several tokens in one output: only their ids count them.
                    self.usage.output_tokens += len(completion.token_ids)
                    self.usage.cached_tokens = output.num_cached_tokens or 0
                    if reason == "abort":
                        raise self._engine.gone()
                    if reason == "error":
                        raise RuntimeError("vLLM ended an answer with an error")
                    if not has_started:
                        has_started = True
                        self._engine.count_answer()
                        yield _started(output.metrics)
                    for piece in splitter.feed(completion.text):
                        yield piece
                    if reason is not None or splitter.ended:
                        for piece in splitter.finish("length" if reason == "length" else "stop"):
                            yield piece
                        return
            finally:
                await self._outputs.aclose()


@contextmanager
def _told(gone: Callable[[], ApiError]) -> Iterator[None]:
    """Turn what vLLM raises into what a caller may hear. What else it raises is a fault of ours: a 500."""
    from vllm.exceptions import GracefulHTTPError, VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError

    try:
        yield
    except EngineDeadError:
        raise gone() from None
    except GracefulHTTPError:  # a full queue
        raise _unavailable("is busy", _BUSY_RETRY_AFTER_S) from None
    except VLLMClientError as error:
        name = getattr(error, "parameter", None)
        param = name if name in _WIRE_NAMES else None
        raise ApiError(INVALID_REQUEST, "the model runtime refused the sampling values", param=param) from None


def _unavailable(word: str, retry_after_s: int) -> ApiError:
    message = f"The model runtime {word}; {retry_in(retry_after_s)}"
    return ApiError(BACKEND_UNAVAILABLE, message, retry_after_s=retry_after_s)


def _started(metrics: Any) -> Started:
    """Timings of the core, in milliseconds, where the output carries them."""
    if metrics is None or not metrics.scheduled_ts or not metrics.first_token_ts:
        return Started()
    return Started(
        queue_ms=(metrics.scheduled_ts - metrics.queued_ts) * 1000,
        prefill_ms=(metrics.first_token_ts - metrics.scheduled_ts) * 1000,
    )


def _add_grammar(parameters: Any, tag: str) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    outputs = StructuredOutputsParams(structural_tag=tag)
    outputs._backend = _GRAMMARS  # noqa: SLF001 - what the look that we spare the event loop would set
    parameters.structured_outputs = outputs


def _max_image_side_px(config: Any) -> int | None:
    """What the model's own processor would shrink to, where it says so; Qwen's number is an area, hence large."""
    if not config.is_multimodal_model:
        return None
    size = config.hf_image_processor_config.get("size")
    longest = size.get("longest_edge") if isinstance(size, dict) else None
    return longest if isinstance(longest, int) else ANY_SIDE_PX


def _with_pictures(prompt: Prompt) -> tuple[list[dict[str, Any]], int]:
    """The messages with our image parts under vLLM's name, and how many these are.

    vLLM keeps what it made of an image, in this process and in its core, under the image's hash, and how long an
    answer takes would tell one organization that another has sent the same. So each has names of its own for images.
    To make them takes a millisecond or two per megabyte, so it is to be done in a thread.
    """
    messages: list[dict[str, Any]] = []
    count = 0
    for message in prompt.messages:
        content = message["content"]
        if not isinstance(content, str):
            parts = [_with_picture(part, prompt.cache_salt) if "image" in part else part for part in content]
            count += sum("image" in part for part in content)
            content = parts
        messages.append({**message, "content": content})
    return messages, count


def _with_picture(part: Mapping[str, Any], salt: str | None) -> dict[str, Any]:
    image = part["image"]
    named: dict[str, Any] = {"type": "image_pil", "image_pil": image}
    if salt is not None:
        pixels = hashlib.blake2b(f"{len(salt)} {salt} {image.mode} {image.size} ".encode(), digest_size=32)
        pixels.update(image.tobytes())
        named["uuid"] = pixels.hexdigest()
    return named


def _new_call_id() -> str:
    return f"chatcmpl-tool-{secrets.token_hex(8)}"
