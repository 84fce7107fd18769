"""The request's fields as types: what this node takes today.

Decides the shape of each field on its own. Must not know how fields belong together (`parse.py`), nor what they
mean to a model (`translate/`). Types, bounds and names are the seed's ("Request body").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

TAG = "#"
"""Marks the names of union branches in pydantic's error paths, so that `parse.py` can strip them."""


class Wire(BaseModel):
    """Strict: JSON's types as they are, no unknown field."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class TextBlock(Wire):
    """A block of text."""

    type: Literal["text"]
    text: str


def _branch(value: Any) -> str:
    return "#blocks" if isinstance(value, list) else "#string"


Blocks = Sequence[TextBlock]
Content = Annotated[
    Annotated[str, Tag("#string")] | Annotated[list[TextBlock], Tag("#blocks")], Discriminator(_branch)
]


class Message(Wire):
    """One turn."""

    role: Literal["user", "assistant"]
    content: Content


class MessagesRequest(Wire):
    """The body of `POST /v1/infer/v1/messages`."""

    model: str = Field(min_length=1, max_length=256)
    messages: list[Message] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    system: Content | None = None
    stop_sequences: list[Annotated[str, Field(min_length=1)]] | None = None
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=1, le=1_000_000)
