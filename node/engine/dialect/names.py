"""Which dialect goes with which of vLLM's parser names, since operators know models by those.

Decides what this package can stand in for. Must not import vLLM.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.catalog.smollm2 import ModelNotReady
from node.engine.dialect.spec import Dialect, ToolFormat

_TOOLS: dict[str, ToolFormat] = {
    "hermes": "hermes",
    "qwen3_json": "hermes",
    "qwen3_coder": "qwen3_coder",
    "qwen3_xml": "qwen3_coder",
}
_THINKING = {"qwen3": ("<think>", "</think>")}


def dialect_of(*, reasoning_parser: str | None, tool_parser: str | None) -> Dialect:
    """The dialect of a model, by what would parse it in vLLM.

    Raises:
        ModelNotReady: a parser that has no dialect here.
    """
    if reasoning_parser is not None and reasoning_parser not in _THINKING:
        raise _unknown("reasoning", reasoning_parser, _THINKING)
    if tool_parser is not None and tool_parser not in _TOOLS:
        raise _unknown("tool", tool_parser, _TOOLS)
    return Dialect(
        thinking=None if reasoning_parser is None else _THINKING[reasoning_parser],
        tools=None if tool_parser is None else _TOOLS[tool_parser],
    )


def _unknown(kind: str, name: str, known: Iterable[str]) -> ModelNotReady:
    return ModelNotReady(f"{kind} parser {name!r} is not one of those that this node has: {', '.join(known)}")
