"""How the tokenizer of a model reads the markers of its dialect. Must not know vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from node.catalog.served import ServedModel
from node.engine.dialect import Dialect, dialect_of


@dataclass(frozen=True, slots=True)
class Markers:
    """A dialect, and what a tokenizer makes of it.

    Attributes:
        are_special: a decoder leaves them out with the other special tokens, unless it is told not to.
        call_ids: the token that begins a call, where it is one.
    """

    dialect: Dialect
    are_special: bool
    call_ids: tuple[int, ...]


def read_markers(model: ServedModel, tokenizer: Any) -> Markers:
    """Look up every marker among the tokenizer's added tokens.

    Raises:
        ModelNotReady: a parser that we don't have.
    """
    dialect = dialect_of(reasoning_parser=model.reasoning_parser, tool_parser=model.tool_parser)
    added = {token.content: (number, bool(token.special)) for number, token in tokenizer.added_tokens_decoder.items()}
    found = [(word, *added[word]) for word in dialect.markers if word in added]
    return Markers(
        dialect=dialect,
        are_special=any(is_special for _, _, is_special in found),
        call_ids=tuple(number for word, number, _ in found if word == dialect.call_begins),
    )
