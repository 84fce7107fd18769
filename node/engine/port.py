"""What the node asks of an engine, and the pieces that it gets back.

Decides the vocabulary between generation and translation. Must not know vLLM, HTTP or the wire. Engines raise
`ApiError` for what a caller must hear of (prompt too long, engine gone), and nothing else on purpose.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

EngineState = Literal["starting", "ready", "restarting", "failed", "draining", "stopped"]
ANY_SIDE_PX = 1 << 16
"""Of an engine that doesn't know what its model shrinks to; the node has a bound of its own."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is to be rendered by the model's chat template.

    Attributes:
        messages: chat messages as templates take them, special tokens neutralised. `content` is a string, or a list
            of `{"type": "text", "text": str}` and `{"type": "image", "image": Image}` parts; assistant messages may
            have `reasoning_content` and `tool_calls`, tool messages have `tool_call_id`.
        tools: the functions that the prompt shows, as templates take them (OpenAI's shape).
        enable_thinking: always explicit, since templates and parsers default differently.
        continues_last: the last message is the start of the answer, and the model continues it.
        cache_salt: keeps the prefix caches of organizations apart.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    enable_thinking: bool = False
    continues_last: bool = False
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. `None` leaves a choice to the model's own defaults."""

    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """A JSON Schema of the caller's, and the dotted path where it stands in the request."""

    schema: Mapping[str, Any]
    path: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the answer may call.

    Attributes:
        is_strict: its input must match the schema. Always so for a call that is forced.
    """

    name: str
    schema: Schema
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Guide:
    """What an answer may and must look like. The default asks for nothing: free text.

    Attributes:
        tools: the functions that it may call; none means no call at all.
        must_call: it calls one of `tools`, and has no text.
        one_call: it ends with its first call.
        answer: the schema that its text is JSON of.
        thinking_budget_tokens: thinking ends after so many; None means the model decides.
    """

    tools: Sequence[Tool] = ()
    must_call: bool = False
    one_call: bool = False
    answer: Schema | None = None
    thinking_budget_tokens: int | None = None

    def promises(self) -> list[Schema]:
        """The schemas that the answer is kept to: of tools that must be called, of strict ones, and of its text."""
        tools = [tool.schema for tool in self.tools if self.binds(tool)]
        return tools if self.answer is None else [*tools, self.answer]

    def binds(self, tool: Tool) -> bool:
        """Whether the input of a call of this tool must match its schema."""
        return self.must_call or tool.is_strict


@dataclass(frozen=True, slots=True)
class Started:
    """The first token was generated; comes once, before any other piece.

    Attributes:
        queue_ms, prefill_ms: what the engine measured, where it does.
    """

    queue_ms: float | None = None
    prefill_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of reasoning, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the visible answer, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A tool call opens; its arguments follow, up to its `ToolEnd`."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """A piece of the open call's arguments, as JSON text."""

    json: str


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """The open call is complete: its arguments are one JSON object. Missing only where the answer was cut."""


@dataclass(frozen=True, slots=True)
class End:
    """The model ended (`stop`), or its room did (`length`). The last piece."""

    reason: Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine does at this moment, as far as it tells.

    Attributes:
        running, waiting: requests that are computed, and those in its queue.
        cache_usage: how much of the room for prompts and answers is taken, from 0 to 1.
        steps: how often it has computed. With requests in hand it stands still only where the engine hangs.
        answers: how many it has begun: an engine without any may be one that can't work.
    """

    running: int = 0
    waiting: int = 0
    cache_usage: float | None = None
    steps: int = 0
    answers: int = 0

    @property
    def held(self) -> int:
        """Requests in its hands."""
        return self.running + self.waiting


Piece = Started | Thinking | Text | ToolStart | ToolArguments | ToolEnd | End


@dataclass(slots=True)
class Usage:
    """Token counts by id, kept current while a generation runs, so that an abandoned one is billed to its last token.

    Attributes:
        input_tokens: the whole prompt. cached_tokens: how many of them came from the prefix cache.
        output_tokens: generated so far, the end-of-turn token included.
    """

    input_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0


class Rendered(Protocol):
    """A prompt as token ids; opaque to everything but its engine."""

    @property
    def prompt_tokens(self) -> int:
        """The length of the whole prompt."""


class Generation(Protocol):
    """One running answer."""

    usage: Usage

    def __aiter__(self) -> AsyncIterator[Piece]: ...

    async def aclose(self) -> None:
        """Stop generating, if it still runs. Safe to call at any time, more than once."""


class Engine(Protocol):
    """A loaded model.

    Attributes:
        back_in_s: when another is expected, if this one is gone; for those whose answers fail with it. Who makes
            engines sets it.
    """

    back_in_s: Callable[[], int]

    @property
    def context_tokens(self) -> int:
        """The window: the most tokens that prompt and answer may have together."""

    @property
    def special_tokens(self) -> frozenset[str]:
        """Every string that the tokenizer reads as one token of its own wherever it stands."""

    @property
    def max_image_side_px(self) -> int | None:
        """What longer sides of images are shrunk to before a prompt holds them; None for a model without vision."""

    @property
    def takes_tools(self) -> bool:
        """Whether the model knows how to call a tool."""

    async def render(self, prompt: Prompt) -> Rendered:
        """Template and tokenize, off the event loop where it is long.

        Raises:
            ApiError: `PROMPT_TOO_LONG`, if it leaves no room for one token.
        """

    async def check_guide(self, rendered: Any, guide: Guide) -> None:
        """Make sure that the engine can keep an answer to a guide, within bounds of time and memory.

        Raises:
            ApiError: a schema of it can't be enforced; `param` is its path.
        """

    def generate(self, rendered: Any, guide: Guide, sampling: Sampling, request_id: str) -> Generation:
        """Start generating from what this engine rendered, under a guide that was checked.

        Errors come when iterating. `sampling.max_tokens` is capped to the room that is left.
        """

    def unfinished_requests(self) -> int:
        """Requests that the engine holds right now."""

    def load(self) -> EngineLoad:
        """What it does right now; cheap."""

    async def wait_until_dead(self) -> str:
        """Return the cause, for the log, once the engine can't answer any more."""

    async def kill(self) -> None:
        """End what computes at once, whatever it does: running generations fail, `wait_until_dead` returns."""

    async def shutdown(self) -> None:
        """End the engine and its processes; running generations fail."""


class EngineFactory(Protocol):
    """Makes a ready engine. Slow, and never blocks the event loop. Cancelled, it ends what it has begun."""

    async def __call__(self) -> Engine: ...
