"""The request's fields as types: what this node takes today.

Decides the shape of each field on its own. Must not know how fields belong together (`parse.py`), nor what they
mean to a model (`translate/`). Types, bounds and names are the seed's ("Request body"); what agents send beyond it is
the contract's ("Agents run unchanged").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag

TAGS = ("#string", "#blocks")
"""Names of union branches in pydantic's error paths, which `parse.py` leaves out."""


class Wire(BaseModel):
    """Strict: JSON's types as they are. Unknown fields are kept, for `parse.py` to refuse the first by its path."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, protected_namespaces=())


class FirstFault(FailFast):
    """Stop a list at its first fault. Hashable, as members of a union must be."""

    def __hash__(self) -> int:
        """All are alike."""
        return hash(FirstFault)


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


def _branch(value: Any) -> str:
    return "#blocks" if isinstance(value, list) else "#string"


Blocks = Sequence[TextBlock]
Content = Annotated[
    Annotated[str, Tag("#string")] | Annotated[list[TextBlock], FirstFault(), Tag("#blocks")], Discriminator(_branch)
]


class OutputConfig(Wire):
    """Ignored but for its presence: effort is a hint to another model."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class Message(Wire):
    """One turn. A `system` turn is how agents remind a model in the middle of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: Content
    output_config: OutputConfig | None = None


class ThinkingOff(Wire):
    """The default, said aloud."""

    type: Literal["disabled"]


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
    system: Content | None = None
    stop_sequences: Annotated[list[Annotated[str, Field(min_length=1)]], FirstFault()] | None = None
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=1, le=1_000_000)
    thinking: ThinkingOff | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None
    service_tier: str | None = None
    cache_control: CacheControl | None = None
    context_management: ContextManagement | None = None
