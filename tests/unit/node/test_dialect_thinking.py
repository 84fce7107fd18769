"""Where thinking ends and text begins, and whose white space is dropped."""

from __future__ import annotations

import pytest

from node.catalog.smollm2 import ModelNotReady
from node.engine.dialect import Dialect, dialect_of
from node.engine.port import End, Piece, Text, Thinking, ToolArguments, ToolEnd, ToolStart
from tests.splitting import HERMES, QWEN, split, splitter

PLAIN = Dialect()
STOP = End("stop")
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
CALLED: list[Piece] = [ToolStart("id0", "f"), ToolArguments("{}"), ToolEnd()]


def test_text_passes_as_it_is_where_nothing_is_marked_up() -> None:
    text = "\na < b <think> </think> <tool_call> \n"
    assert split(PLAIN, text, size=3) == [Text(text), STOP]


def test_plain_text_passes_at_once() -> None:
    each = splitter(HERMES)
    assert each.feed("Hel") == [Text("Hel")]
    assert each.feed("") == []
    assert each.feed("lo <b") == [Text("lo <b")]


def test_only_what_may_become_a_marker_is_held() -> None:
    each = splitter(HERMES)
    assert each.feed("a < b </") == [Text("a < b")]
    assert each.feed("b>") == [Text(" </b>")]


def test_line_breaks_around_the_markers_belong_to_neither_side() -> None:
    answer = "\nfirst\n\nsecond\n</think>\n\nanswer\n"
    for size in (None, 1, 7):
        pieces = split(HERMES, answer, thinks=True, size=size)
        assert pieces == [Thinking("first\n\nsecond"), Text("answer\n"), STOP]


def test_text_without_thinking_before_it_keeps_its_line_breaks() -> None:
    assert split(HERMES, "\nanswer\n") == [Text("\nanswer\n"), STOP]


def test_thinking_of_line_breaks_only_is_none() -> None:
    assert split(HERMES, "\n\n</think>\n\nanswer", thinks=True) == [Text("answer"), STOP]


def test_the_marker_that_begins_thinking_may_be_the_models_own() -> None:
    assert split(HERMES, " \n<think>\nhm</think>answer") == [Thinking("hm"), Text("answer"), STOP]
    assert split(HERMES, "<think>\nhm</think>answer", thinks=True) == [Thinking("hm"), Text("answer"), STOP]


def test_the_marker_that_begins_thinking_counts_only_at_the_start() -> None:
    assert split(HERMES, "The tag <think> opens.") == [Text("The tag <think> opens."), STOP]


def test_an_end_of_thinking_in_text_is_not_shown() -> None:
    assert split(HERMES, "</think>\n\nyes</think> no") == [Text("yes no"), STOP]


def test_an_answer_cut_in_thinking_is_thinking_only() -> None:
    assert split(HERMES, "hm\n</thi", thinks=True, reason="length") == [Thinking("hm\n</thi"), End("length")]


def test_what_was_held_comes_at_the_end() -> None:
    assert split(HERMES, "1 </th") == [Text("1 </th"), STOP]
    assert split(HERMES, " <thi") == [Text(" <thi"), STOP]
    assert split(HERMES, " \n") == [Text(" \n"), STOP]


def test_an_empty_answer_is_its_end() -> None:
    assert split(HERMES, "") == [STOP]


def test_text_loses_the_white_space_before_a_call_only() -> None:
    assert split(HERMES, "One. \n\n Two. \n\n" + CALL) == [Text("One. \n\n Two."), *CALLED, STOP]


def test_white_space_around_calls_is_no_text() -> None:
    second = [ToolStart("id1", "f"), *CALLED[1:]]
    assert split(HERMES, f"\n{CALL} \n {CALL}\n\n") == [*CALLED, *second, STOP]
    assert split(HERMES, f"{CALL}\n\nDone.\n") == [*CALLED, Text("Done.\n"), STOP]


def test_a_call_ends_thinking() -> None:
    assert split(HERMES, f"hm\n{CALL}\n</think>\n\nDone.", thinks=True) == [
        Thinking("hm"),
        *CALLED,
        Text("Done."),
        STOP,
    ]


@pytest.mark.parametrize("place", [11, 12, 20, 23, 40, 42, len(CALL) - 3])
def test_a_forced_end_of_thinking_is_taken_out_of_a_call_that_thinking_opened(place: int) -> None:
    answer = f"hm{CALL[:place]}</think>{CALL[place:]}"
    for size in (None, 1, 5):
        assert split(HERMES, answer, thinks=True, size=size) == [Thinking("hm"), *CALLED, STOP]


def test_only_the_forced_end_is_taken_out() -> None:
    answer = 'hm<tool_call>{"name": "f", "arguments": {"a": "x</think>y</think>"}}</tool_call>'
    assert ToolArguments('{"a": "xy</think>"}') in split(HERMES, answer, thinks=True)


def test_an_end_of_thinking_in_a_call_that_text_opened_is_the_calls() -> None:
    answer = '<tool_call>{"name": "f", "arguments": {"a": "</think>"}}</tool_call>'
    assert split(HERMES, answer)[1] == ToolArguments('{"a": "</think>"}')


def test_half_an_end_of_thinking_is_not_lost() -> None:
    answer = 'hm<tool_call>{"name": "f", "arguments": {}}</thi'
    assert split(HERMES, answer, thinks=True, reason="length")[1:] == [*CALLED, Text("</thi"), End("length")]


def test_a_tag_that_thinking_only_mentions_does_not_end_it() -> None:
    assert split(QWEN, "I could use <tool_call> here.</think>No.", thinks=True) == [
        Thinking("I could use  here."),
        Text("No."),
        STOP,
    ]


@pytest.mark.parametrize("thinks", [True, False])
def test_no_call_is_made_where_none_is_expected(thinks: bool) -> None:
    pieces = split(HERMES, f"a {CALL} b", tools=[], thinks=thinks)
    inside = 'a \n{"name": "f", "arguments": {}}\n b'
    assert pieces == [Thinking(inside) if thinks else Text(inside), STOP]


@pytest.mark.parametrize("inside", ["get_weather(1)", " \n 12 </b>", "[1, 2]", ""])
def test_a_tag_without_a_call_is_text(inside: str) -> None:
    assert split(QWEN, f"a <tool_call>{inside}</tool_call> b") == [Text(f"a {inside} b"), STOP]


def test_markers_have_one_bracket_that_begins_them() -> None:
    with pytest.raises(ValueError, match="begins with '<'"):
        Dialect(thinking=("[THINK]", "[/THINK]"))


def test_a_dialect_is_known_by_the_parsers_of_vllm() -> None:
    assert dialect_of(reasoning_parser="qwen3", tool_parser="qwen3_coder") == QWEN
    assert dialect_of(reasoning_parser=None, tool_parser=None) == PLAIN
    assert dialect_of(reasoning_parser=None, tool_parser="hermes").call_begins == "<tool_call>"
    for reasoning, tools in (("other", None), (None, "other")):
        with pytest.raises(ModelNotReady, match="other"):
            dialect_of(reasoning_parser=reasoning, tool_parser=tools)


def test_a_dialect_lists_its_markers() -> None:
    assert (PLAIN.markers, PLAIN.thinks, PLAIN.call_begins) == ((), False, None)
    assert HERMES.thinks
    assert HERMES.markers == ("<think>", "</think>", "<tool_call>", "</tool_call>")
