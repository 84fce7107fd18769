"""vLLM 0.32 in this process, behind the engine's port. The only module that imports vllm.

Decides how a prompt is rendered, which sampling vLLM gets, and what its failures mean to a caller. Must not know the
wire. Its engine core is a process of its own; imports and starts happen in threads, off the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from node.catalog.gpu import has_nvidia_gpu
from node.catalog.ready import check_ready
from node.catalog.served import ServedModel
from node.engine.port import End, Piece, Prompt, Sampling, Started, Usage
from node.engine.split import PlainText, Split, ThinkingAndText
from node.engine.vllm_setup import engine_arguments, set_environment
from shared.errors import BACKEND_UNAVAILABLE, INVALID_REQUEST, PROMPT_TOO_LONG, ApiError

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

LEAST_TOP_P = 1e-9  # vLLM refuses 0; this keeps the likeliest token only
COUNTED_WINDOWS = 4
"""A prompt that doesn't fit is counted exactly up to so many windows; beyond that its length is a lower bound.

vLLM refuses more characters than so many tokens could hold before it tokenizes, so this bounds the work as well.
"""
_DEATH_POLL_S = 0.25
_RETRY_AFTER_S = 5
_BUSY_RETRY_AFTER_S = 1
_WIRE_NAMES = frozenset({"max_tokens", "temperature", "top_p", "top_k"})


async def start_vllm_engine(model: ServedModel) -> VllmEngine:
    """Load a model: 15 to 60 s on a CPU. The event loop goes on meanwhile.

    Raises:
        ModelNotReady: nothing is there to be loaded.
    """
    return await asyncio.to_thread(_build, model)


def _build(model: ServedModel) -> VllmEngine:
    check_ready(model)
    on_cpu = not has_nvidia_gpu()
    set_environment(model, on_cpu=on_cpu)
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Quiet(StatLoggerBase):  # type: ignore[misc]
        """Present so that outputs carry their timings; records nothing."""

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            """Nothing to keep."""

        def record(self, *args: Any, **kwargs: Any) -> None:
            """Nothing to record."""

        def log_engine_initialized(self) -> None:
            """Nothing to say."""

    arguments = engine_arguments(model, on_cpu=on_cpu)
    return VllmEngine(AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), stat_loggers=[Quiet]), model)


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """vLLM's engine input, and whether the answer begins with thinking."""

    engine_input: dict[str, Any]
    thinking: bool = False

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

    def __init__(self, engine: AsyncLLM, model: ServedModel) -> None:
        self._engine = engine
        self._template = None if model.chat_template is None else model.chat_template.read_text()
        self._defaults: dict[str, Any] = engine.model_config.get_diff_sampling_param()
        self.context_tokens: int = engine.model_config.max_model_len
        tokenizer = engine.renderer.get_tokenizer()
        self.special_tokens = frozenset(token.content for token in tokenizer.added_tokens_decoder.values())
        self._reasoning = (
            None
            if model.reasoning_parser is None
            else Reasoning(model.reasoning_parser, tokenizer, engine.model_config)
        )

    async def render(self, prompt: Prompt) -> RenderedPrompt:
        """Template and tokenize in the renderer's threads.

        Raises:
            ApiError: `PROMPT_TOO_LONG` or `INVALID_REQUEST`.
        """
        from vllm.exceptions import VLLMValidationError
        from vllm.renderers import ChatParams, TokenizeParams

        # The start of an answer is text: a parser that expects thinking would take what follows for more of it.
        thinking = prompt.enable_thinking and not prompt.continues_last
        kwargs = {
            "enable_thinking": thinking,
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
            if error.parameter in ("input_tokens", "input_text"):
                raise self._too_long(limit + 1) from None
            raise ApiError(INVALID_REQUEST, "the messages can't be rendered by this model's template") from None
        rendered = RenderedPrompt(engine_input, thinking)
        if rendered.prompt_tokens >= self.context_tokens:
            raise self._too_long(rendered.prompt_tokens)
        return rendered

    def _too_long(self, tokens: int) -> ApiError:
        maximum = self.context_tokens - 1  # one token of the window is for the answer
        return ApiError(PROMPT_TOO_LONG, f"prompt is too long: {tokens} tokens > {maximum} maximum")

    def generate(self, rendered: RenderedPrompt, sampling: Sampling, request_id: str) -> VllmGeneration:
        """Start generating; `max_tokens` is capped to the room that is left.

        Raises:
            ApiError: `INVALID_REQUEST`, when vLLM refuses a value. All else comes when iterating.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        chosen = {
            "temperature": sampling.temperature,
            "top_p": None if sampling.top_p is None else max(sampling.top_p, LEAST_TOP_P),
            "top_k": sampling.top_k,
            "max_tokens": min(sampling.max_tokens, self.context_tokens - rendered.prompt_tokens),
            "output_kind": RequestOutputKind.DELTA,
        }
        with _told():
            parameters = SamplingParams(
                **{**self._defaults, **{name: value for name, value in chosen.items() if value is not None}}
            )
        split: Split = PlainText()
        reasoning: dict[str, Any] = {}
        if self._reasoning is not None:
            split, parameters.skip_special_tokens, reasoning = self._reasoning.begin(rendered)
        outputs = self._engine.generate(rendered.engine_input, parameters, request_id, **reasoning)
        return VllmGeneration(outputs, split, rendered.prompt_tokens)

    def unfinished_requests(self) -> int:
        """Requests that the engine holds right now."""
        return int(self._engine.get_num_unfinished_requests())

    async def wait_until_dead(self) -> str:
        """Return once vLLM says that its core is gone."""
        while not self._engine.errored:  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(_DEATH_POLL_S)
        return "the engine core ended"

    async def shutdown(self) -> None:
        """End the core, 3 to 5 s, in a thread."""
        await asyncio.to_thread(self._engine.shutdown)


class Reasoning:
    """vLLM's parser of one model's thinking.

    Args:
        name: of vLLM's reasoning parser.
    """

    def __init__(self, name: str, tokenizer: Any, model_config: Any) -> None:
        from vllm.parser import ParserManager

        self._tokenizer, self._config = tokenizer, model_config
        self._class = ParserManager.get_parser(
            reasoning_parser_name=name, model_name=model_config.model, tokenizer=tokenizer
        )
        parser = self._class(tokenizer, model_config=model_config).reasoning_parser
        markers = {parser.reasoning_start_str, parser.reasoning_end_str}
        # vLLM's parsers ask for every special token as text, so that `<|im_start|>` of a rambling model would reach
        # the client. That is only needed where the markers are special themselves.
        self._needs_special = any(
            token.special for token in tokenizer.added_tokens_decoder.values() if token.content in markers
        )

    def begin(self, rendered: RenderedPrompt) -> tuple[Split, bool, dict[str, Any]]:
        """A parser for one answer, whether to skip special tokens, and what the core must be told."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        kwargs = {"enable_thinking": rendered.thinking}
        parser = self._class(self._tokenizer, model_config=self._config, chat_template_kwargs=kwargs)
        parser.set_prompt_token_ids(rendered.token_ids)
        # Not a request to anyone: parsers read from it whether there are tools.
        carrier = parser.adjust_request(
            ChatCompletionRequest(messages=[], stream=True, tool_choice="none", chat_template_kwargs=kwargs)
        )
        split = ThinkingAndText(
            lambda text, ids, finished: parser.parse_delta(text, ids, carrier, rendered.token_ids, finished=finished)
        )
        core = {"reasoning_ended": not rendered.thinking, "reasoning_parser_kwargs": {"chat_template_kwargs": kwargs}}
        return split, carrier.skip_special_tokens or not self._needs_special, core


class VllmGeneration:
    """One running answer of vLLM's.

    Args:
        outputs: vLLM's generator of deltas. split: makes pieces of their text.
    """

    def __init__(self, outputs: AsyncGenerator[Any], split: Split, prompt_tokens: int) -> None:
        self.usage = Usage(input_tokens=prompt_tokens)
        self._outputs = outputs
        self._pieces = self._read(split)

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._pieces

    async def aclose(self) -> None:
        """Abort in the core, unless the answer is complete. vLLM only notices a generator that is closed."""
        await self._pieces.aclose()
        await self._outputs.aclose()

    async def _read(self, split: Split) -> AsyncGenerator[Piece]:
        has_started = False
        with _told():
            try:
                async for output in self._outputs:
                    completion = output.outputs[0]
                    ids, reason = list(completion.token_ids), completion.finish_reason
                    # A slow reader gets several tokens in one output: only their ids count them.
                    self.usage.output_tokens += len(ids)
                    self.usage.cached_tokens = output.num_cached_tokens or 0
                    if reason == "abort":
                        raise _unavailable()
                    if reason == "error":
                        raise RuntimeError("vLLM ended an answer with an error")
                    if not has_started:
                        has_started = True
                        yield _started(output.metrics)
                    for piece in split(completion.text, ids, finished=reason is not None):
                        yield piece
                    if reason is not None:
                        yield End("length" if reason == "length" else "stop")
            finally:
                await self._outputs.aclose()


@contextmanager
def _told() -> Iterator[None]:
    """Turn what vLLM raises into what a caller may hear. What else it raises is a fault of ours: a 500."""
    from vllm.exceptions import GracefulHTTPError, VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError

    try:
        yield
    except EngineDeadError:
        raise _unavailable() from None
    except GracefulHTTPError:  # a full queue
        raise _unavailable("is busy", _BUSY_RETRY_AFTER_S) from None
    except VLLMClientError as error:
        name = getattr(error, "parameter", None)
        param = name if name in _WIRE_NAMES else None
        raise ApiError(INVALID_REQUEST, "the model runtime refused the sampling values", param=param) from None


def _unavailable(word: str = "is restarting", retry_after_s: int = _RETRY_AFTER_S) -> ApiError:
    seconds = "1 second" if retry_after_s == 1 else f"{retry_after_s} seconds"
    message = f"The model runtime {word}; retry in {seconds}"
    return ApiError(BACKEND_UNAVAILABLE, message, retry_after_s=retry_after_s)


def _started(metrics: Any) -> Started:
    """Timings of the core, in milliseconds, where the output carries them."""
    if metrics is None or not metrics.scheduled_ts or not metrics.first_token_ts:
        return Started()
    return Started(
        queue_ms=(metrics.scheduled_ts - metrics.queued_ts) * 1000,
        prefill_ms=(metrics.first_token_ts - metrics.scheduled_ts) * 1000,
    )
