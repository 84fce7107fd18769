"""Answers to pieces, for tests of the dialects: in chunks of any size, with what belongs together joined."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from node.engine.dialect import Dialect, Splitter
from node.engine.port import Piece, Schema, Text, Thinking, Tool, ToolArguments

THINKING = ("<think>", "</think>")
HERMES = Dialect(thinking=THINKING, tools="hermes")
QWEN = Dialect(thinking=THINKING, tools="qwen3_coder")


def tool(schema: Mapping[str, Any] | None = None, name: str = "f") -> Tool:
    """A function that may be called."""
    return Tool(name, Schema(schema or {}, "tools.0.input_schema"))


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """The same pieces in as few as may be."""
    whole: list[Piece] = []
    for piece in pieces:
        match whole[-1:], piece:
            case [Text(before)], Text(more):
                whole[-1] = Text(before + more)
            case [Thinking(before)], Thinking(more):
                whole[-1] = Thinking(before + more)
            case [ToolArguments(before)], ToolArguments(more):
                whole[-1] = ToolArguments(before + more)
            case _:
                whole.append(piece)
    return whole


def chunks(answer: str, size: int | None) -> list[str]:
    """An answer in pieces of a size, or in one."""
    step = size or max(1, len(answer))
    return [answer[start : start + step] for start in range(0, len(answer), step)]


def splitter(
    dialect: Dialect, tools: Sequence[Tool] | None = None, *, thinks: bool = False, one_call: bool = False
) -> Splitter:
    """A splitter whose calls are `id0`, `id1`, …"""
    ids = itertools.count()
    return Splitter(
        dialect=dialect,
        begins_thinking=thinks,
        tools=[tool()] if tools is None else tools,
        one_call=one_call,
        new_call_id=lambda: f"id{next(ids)}",
    )


def split(
    dialect: Dialect,
    answer: str,
    tools: Sequence[Tool] | None = None,
    *,
    thinks: bool = False,
    one_call: bool = False,
    reason: Literal["stop", "length"] = "stop",
    size: int | None = None,
) -> list[Piece]:
    """All pieces of an answer, joined.

    Raises:
        BrokenCall: what the splitter raised.
    """
    each = splitter(dialect, tools, thinks=thinks, one_call=one_call)
    pieces = [piece for chunk in chunks(answer, size) for piece in each.feed(chunk)]
    return joined([*pieces, *each.finish(reason)])
