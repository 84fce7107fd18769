"""The request's fields as types: all that this node takes.

Decides the shape of each field on its own. Must not know how fields belong together (`rules.py`), nor what they
mean to a model (`translate/`). Types, bounds and names are the seed's ("Request body"); what agents send beyond it is
the contract's ("Agents run unchanged").
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag

TAG_MARK = "#"
"""How names of union branches begin in pydantic's error paths, which `parse.py` leaves out. No field begins so."""

Effort = Literal["low", "medium", "high", "xhigh", "max"]


class Wire(BaseModel):
    """Strict: JSON's types as they are. Unknown fields are kept, for `parse.py` to refuse the first by its path."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, protected_namespaces=())


class FirstFault(FailFast):
    """Stop a list at its first fault. Hashable, as members of a union must be."""

    def __hash__(self) -> int:
        """All are alike."""
        return hash(FirstFault)


def _by(field: str) -> Discriminator:
    """Choose the branch of a union by a field."""

    def branch(value: Any) -> str | None:
        name = value.get(field) if isinstance(value, dict) else None
        return TAG_MARK + name if isinstance(name, str) else None

    return Discriminator(branch)


T = TypeVar("T")
TextOr = Annotated[
    Annotated[str, Tag("#string")] | Annotated[list[T], FirstFault(), Tag("#list")],
    Discriminator(lambda value: "#list" if isinstance(value, list) else "#string"),
]
"""A string, or a list of blocks."""


class CacheControl(Wire):
    """Ignored: prefixes are cached anyway."""

    type: str | None = None
    ttl: str | None = None


class TextBlock(Wire):
    """A block of text."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: Annotated[list[dict[str, Any]], FirstFault()] | None = None


class Base64Source(Wire):
    """An image in the body."""

    type: Literal["base64"]
    media_type: Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
    data: str


class UrlSource(Wire):
    """An image elsewhere. The guard says what a URL may be (`node/images/url.py`); here it is only described."""

    type: Literal["url"]
    url: str = Field(json_schema_extra={"pattern": "^https://", "maxLength": 2048})


class ImageBlock(Wire):
    """A picture among the text."""

    type: Literal["image"]
    source: Annotated[Annotated[Base64Source, Tag("#base64")] | Annotated[UrlSource, Tag("#url")], _by("type")]
    cache_control: CacheControl | None = None


class ToolReferenceBlock(Wire):
    """Names a deferred tool, which is in the prompt from then on."""

    type: Literal["tool_reference"]
    tool_name: str
    cache_control: CacheControl | None = None


ResultBlock = Annotated[
    Annotated[TextBlock, Tag("#text")]
    | Annotated[ImageBlock, Tag("#image")]
    | Annotated[ToolReferenceBlock, Tag("#tool_reference")],
    _by("type"),
]


class ToolResultBlock(Wire):
    """What a tool gave back."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: TextOr[ResultBlock] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


class ToolUseBlock(Wire):
    """A call of an earlier answer."""

    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None


class ThinkingBlock(Wire):
    """The reasoning of an earlier answer. Its signature is opaque and not checked."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Wire):
    """Reasoning that no other model can read; left out of the prompt."""

    type: Literal["redacted_thinking"]
    data: str


UserBlock = Annotated[
    Annotated[TextBlock, Tag("#text")]
    | Annotated[ImageBlock, Tag("#image")]
    | Annotated[ToolResultBlock, Tag("#tool_result")],
    _by("type"),
]
AssistantBlock = Annotated[
    Annotated[TextBlock, Tag("#text")]
    | Annotated[ToolUseBlock, Tag("#tool_use")]
    | Annotated[ThinkingBlock, Tag("#thinking")]
    | Annotated[RedactedThinkingBlock, Tag("#redacted_thinking")],
    _by("type"),
]


class MessageConfig(Wire):
    """A turn's own wish, ignored: effort is a hint to another model."""

    effort: Effort | None = None


class UserMessage(Wire):
    """A turn of the caller's side."""

    role: Literal["user"]
    content: TextOr[UserBlock]
    output_config: MessageConfig | None = None


class AssistantMessage(Wire):
    """An earlier answer; as the last turn, the start of the answer."""

    role: Literal["assistant"]
    content: TextOr[AssistantBlock]
    output_config: MessageConfig | None = None


class SystemMessage(Wire):
    """How agents remind a model in the middle of a conversation."""

    role: Literal["system"]
    content: TextOr[TextBlock]
    output_config: MessageConfig | None = None


Message = Annotated[
    Annotated[UserMessage, Tag("#user")]
    | Annotated[AssistantMessage, Tag("#assistant")]
    | Annotated[SystemMessage, Tag("#system")],
    _by("role"),
]


class Tool(Wire):
    """A custom tool. A deferred one is left out of the prompt until a `tool_reference` names it."""

    type: Literal["custom"] | None = None
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    defer_loading: bool | None = None
    eager_input_streaming: bool | None = None
    cache_control: CacheControl | None = None


class AutoChoice(Wire):
    """The model decides whether it calls a tool."""

    type: Literal["auto"]
    disable_parallel_tool_use: bool | None = None


class AnyChoice(Wire):
    """The model calls one of the tools."""

    type: Literal["any"]
    disable_parallel_tool_use: bool | None = None


class ToolChoice(Wire):
    """The model calls this tool."""

    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(Wire):
    """The model sees the tools and calls none."""

    type: Literal["none"]


Choice = Annotated[
    Annotated[AutoChoice, Tag("#auto")]
    | Annotated[AnyChoice, Tag("#any")]
    | Annotated[ToolChoice, Tag("#tool")]
    | Annotated[NoChoice, Tag("#none")],
    _by("type"),
]
Display = Literal["summarized", "omitted", "updates"]


class ThinkingEnabled(Wire):
    """The model reasons first, up to a budget."""

    type: Literal["enabled"]
    budget_tokens: int = Field(ge=1024)
    display: Display | None = None


class ThinkingAdaptive(Wire):
    """The model reasons as long as it wants."""

    type: Literal["adaptive"]
    display: Display | None = None


class ThinkingDisabled(Wire):
    """The default, said aloud."""

    type: Literal["disabled"]


Thinking = Annotated[
    Annotated[ThinkingEnabled, Tag("#enabled")]
    | Annotated[ThinkingAdaptive, Tag("#adaptive")]
    | Annotated[ThinkingDisabled, Tag("#disabled")],
    _by("type"),
]


class JsonFormat(Wire):
    """The answer is JSON that matches the schema."""

    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(Wire):
    """What the answer looks like; effort is ignored."""

    format: JsonFormat | None = None
    effort: Effort | None = None


class Metadata(Wire):
    """Ignored."""

    user_id: str | None = None


class KeepThinking(Wire):
    """The one edit that clears nothing, and so can be taken at its word."""

    type: Literal["clear_thinking_20251015"]
    keep: Literal["all"]


class ContextManagement(Wire):
    """Only edits that clear nothing."""

    edits: Annotated[list[KeepThinking], FirstFault()] | None = None


class MessagesRequest(Wire):
    """The body of `POST /v1/infer/v1/messages`."""

    model: str = Field(min_length=1, max_length=256)
    messages: Annotated[list[Message], FirstFault()] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    system: TextOr[TextBlock] | None = None
    tools: Annotated[list[Tool], FirstFault()] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    stop_sequences: Annotated[list[Annotated[str, Field(min_length=1)]], FirstFault()] | None = None
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=1, le=1_000_000)
    metadata: Metadata | None = None
    service_tier: str | None = None
    cache_control: CacheControl | None = None
    context_management: ContextManagement | None = None
