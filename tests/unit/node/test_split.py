"""Where thinking ends and text begins, and whose line breaks are dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from node.engine.port import Piece, Text, Thinking
from node.engine.split import PlainText, ThinkingAndText


def thought(text: str) -> Any:
    return SimpleNamespace(reasoning=text, content=None)


def said(text: str) -> Any:
    return SimpleNamespace(reasoning=None, content=text)


def pieces_of(*deltas: Any) -> list[Piece]:
    replies = iter(deltas)
    split = ThinkingAndText(lambda text, ids, finished: next(replies))
    return [piece for _ in deltas for piece in split("", [], finished=False)]


def test_plain_text_passes_and_empty_text_is_no_piece() -> None:
    split = PlainText()
    assert list(split("a\n", [1], finished=False)) == [Text("a\n")]
    assert list(split("", [2], finished=True)) == []


def test_line_breaks_around_the_markers_belong_to_neither_side() -> None:
    assert pieces_of(thought("\na"), thought("b\n"), said("\n\n"), said("c\n")) == [
        Thinking("a"),
        Thinking("b"),
        Text("c\n"),
    ]


def test_line_breaks_within_thinking_stay() -> None:
    assert pieces_of(thought("a\n"), thought("\n"), thought("b")) == [Thinking("a"), Thinking("\n\nb")]


def test_text_without_thinking_before_it_keeps_its_line_breaks() -> None:
    assert pieces_of(said("\na")) == [Text("\na")]


def test_one_delta_can_end_thinking_and_begin_text() -> None:
    both = SimpleNamespace(reasoning="a\n", content="\nb")
    assert pieces_of(both, said("\nc")) == [Thinking("a"), Text("b"), Text("\nc")]


@pytest.mark.parametrize("nothing", [None, thought(""), said("")])
def test_nothing_parsed_is_no_piece(nothing: Any) -> None:
    assert pieces_of(nothing) == []
