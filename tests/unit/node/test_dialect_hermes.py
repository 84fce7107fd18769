"""Calls in JSON: what may vary, what is mended, and what breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from node.engine.dialect import BrokenCall
from node.engine.port import End, Piece, Text, ToolArguments, ToolEnd, ToolStart
from node.json_levels import MOST_LEVELS, is_deeper
from tests.splitting import HERMES, split, splitter

STOP = End("stop")


def call(arguments: str, number: int = 0, name: str = "f") -> list[Piece]:
    return [ToolStart(f"id{number}", name), ToolArguments(arguments), ToolEnd()]


def tagged(inside: str) -> str:
    return f"<tool_call>{inside}</tool_call>"


def arguments_of(json_text: str) -> Any:
    """The arguments that come out, parsed."""
    pieces = split(HERMES, tagged(f'{{"name": "f", "arguments": {json_text}}}'), size=1)
    assert isinstance(pieces[1], ToolArguments)
    return json.loads(pieces[1].json)


def test_arguments_stream_as_they_stand() -> None:
    each = splitter(HERMES)
    assert each.feed('<tool_call>\n{"name": "f"') == [ToolStart("id0", "f")]
    assert each.feed(', "arguments": {"a"') == [ToolArguments('{"a"')]
    assert each.feed(': "x y') == [ToolArguments(': "x y')]
    assert each.feed('z", "n": 1') == [ToolArguments('z", "n": ')]
    assert each.feed("2}") == [ToolArguments("12}")]
    assert each.feed("}\n</tool_call>") == [ToolEnd()]


@pytest.mark.parametrize("written", [str, json.dumps], ids=["as an object", "as a string"])
def test_arguments_are_nested_no_deeper_than_they_can_be_sent_back(written: Callable[[str], str]) -> None:
    inner = '{"a": ' + "[" * (MOST_LEVELS - 1) + "]" * (MOST_LEVELS - 1) + "}"
    assert not is_deeper(arguments_of(written(inner)))
    deeper = tagged(f'{{"name": "f", "arguments": {written(inner.replace("[]", "[[]]"))}}}')
    with pytest.raises(BrokenCall):
        split(HERMES, deeper, size=1)


def test_nothing_shows_before_the_name_is_complete() -> None:
    each = splitter(HERMES)
    assert each.feed('<tool_call>{"name": "get_wea') == []
    assert each.finish("length") == [End("length")]


@pytest.mark.parametrize(
    "inside",
    [
        '{"name": "f", "arguments": {"a": 1}}',
        '\n {"name":"f","arguments":{"a": 1} } \n',
        '{"name": "f", "parameters": {"a": 1}}',
        '{"arguments": {"a": 1}, "name": "f"}',
        '{"type": "function", "id": [{"x": "}"}], "name": "f", "arguments": {"a": 1}}',
        '{"name": "f", "arguments": "{\\"a\\": 1}"}',
        '{"name": "f", "arguments": {"a": 1}',  # the last brace is missing
        '{"name": "f", "arguments": {"a": 1}}}',  # or one too many
        '[{"name": "f", "arguments": {"a": 1}}]',
        '<tool_call>{"name": "f", "arguments": {"a": 1}}',
    ],
)
def test_a_call_may_be_written_in_many_ways(inside: str) -> None:
    assert split(HERMES, tagged(inside)) == [*call('{"a": 1}'), STOP]


@pytest.mark.parametrize("inside", ['{"name": "f"}', '{"name": "f", "arguments": null}'])
def test_a_complete_call_without_arguments_has_none(inside: str) -> None:
    assert split(HERMES, tagged(inside)) == [*call("{}"), STOP]


def test_calls_of_unknown_tools_pass_as_they_are() -> None:
    pieces = split(HERMES, tagged('{"name": "caf\\u00e9 \\ud800", "arguments": {}}'))
    assert pieces[0] == ToolStart("id0", "café ?")


ONE = '{"name": "f", "arguments": {}}'


@pytest.mark.parametrize(
    "answer",
    [
        tagged(ONE) + tagged(ONE),
        tagged(ONE) + "\n\n" + tagged(ONE),
        tagged(ONE + "\n" + ONE),
        tagged(f"[{ONE}, {ONE}]"),
        f"<tool_call>{ONE}<tool_call>{ONE}",
        f"<tool_call>{ONE}\n{ONE}",
    ],
)
def test_several_calls_may_follow_each_other(answer: str) -> None:
    assert split(HERMES, answer) == [*call("{}"), *call("{}", 1), STOP]


def test_text_after_a_call_that_has_no_end_tag_is_text() -> None:
    assert split(HERMES, f"<tool_call>{ONE}\nDone </b>") == [*call("{}"), Text("Done </b>"), STOP]


def test_the_other_form_of_call_is_read_too() -> None:
    assert split(HERMES, tagged("<function=f>\n</function>")) == [*call("{}"), STOP]


def test_raw_control_characters_in_strings_are_escaped() -> None:
    assert arguments_of('{"a\x01": "1\n2\t3"}') == {"a\x01": "1\n2\t3"}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "\\u0041\\n\\"\\\\", "b": [1, -2.5e3, 0, true, false, null, {}, []], "c": {"d": [[{"e": ""}]]}}',
        '{ "a" :\n1 ,\t"b": [ ] , "c": { } }',
        '{"a": "\\ud83d\\ude00 \\uD83D\\uDE00 é😀"}',
    ],
)
def test_what_passes_is_what_was_written(text: str) -> None:
    assert arguments_of(text) == json.loads(text)


@pytest.mark.parametrize("half", ["\\ud800", "\\ude00", "\\ud800\\ud800", "\\ud800x", "\\ud800\\n", "\\ud800\\u0041"])
def test_half_a_pair_of_surrogates_is_replaced(half: str) -> None:
    text = arguments_of(f'{{"a": "{half}"}}')["a"]
    assert text == json.loads(f'"{half}"').replace("\ud800", "\ufffd").replace("\ude00", "\ufffd")
    text.encode()


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": ' + "1" * 500 + "}",
        '{"a": 01}',
        '{"a": 1.}',
        '{"a": +1}',
        '{"a": True}',
        '{"a": tru}',
        "{'a': 1}",
        "{a: 1}",
        '{"a" 1}',
        '{"a" "b"}',
        '{"a": 1 "b": 2}',
        '{"a": 1 2}',
        '{"a": 1,}',
        '{"a": [1,]}',
        '{"a": [1}',
        '{"a": 1]',
        '{"a":}',
        '{,"a": 1}',
        '{"a": "\\d"}',
        '{"a": "\\u00g0"}',
        '{"a": ' + "[" * 200 + "]" * 200 + "}",
        "[1]",
        "7",
        '"7"',
        '"{"',
        '"{\\"a\\": 1e999}"',
        "",
    ],
)
def test_arguments_that_are_not_an_object_of_json_break_the_call(arguments: str) -> None:
    for size in (None, 1):
        with pytest.raises(BrokenCall) as caught:
            split(HERMES, tagged(f'{{"name": "f", "arguments": {arguments}}}'), size=size)
        assert arguments[1:] not in str(caught.value) or len(arguments) < 3


@pytest.mark.parametrize(
    "inside",
    [
        '{"arguments": {}}',
        "{}",
        '{"name": ""}',
        '{"name": 7}',
        '{"name": "f", "name": "g"}',
        '{"name": "f", "arguments": {}, "parameters": {}}',
        '{"name": "' + "f" * 600 + '"}',
        '{"name": "' + "f" * 600,
        '{"na\\me": "f"}',
        '{name: "f"}',
        '{"name" "f"}',
        '{"name": "f" "arguments": {}}',
        '{"name": "f", }',
        '{"name": "f", "x": ]}',
        '{"name": "f"<tool_call>',
    ],
)
def test_what_begins_like_a_call_and_is_none_breaks(inside: str) -> None:
    for size in (None, 1):
        with pytest.raises(BrokenCall):
            split(HERMES, tagged(inside), size=size)


def test_what_came_before_a_fault_is_returned_first() -> None:
    each = splitter(HERMES)
    before = each.feed('Hi<tool_call>{"name": "f", "arguments": {"a": [1, nope, 2]}}')
    assert before == [Text("Hi"), ToolStart("id0", "f"), ToolArguments('{"a": [1, ')]
    for _ in range(2):
        with pytest.raises(BrokenCall, match="not valid JSON"):
            each.feed("more")
    with pytest.raises(BrokenCall):
        each.finish("length")


CUT = '<tool_call>{"name": "f", "arguments": {"a": "x'


def test_a_call_that_is_cut_has_no_end() -> None:
    assert split(HERMES, CUT, reason="length") == [ToolStart("id0", "f"), ToolArguments('{"a": "x'), End("length")]


@pytest.mark.parametrize("answer", [CUT, '<tool_call>{"name', "<tool_call><func", '<tool_call>{"name": "f"'])
def test_a_model_that_ends_inside_a_call_breaks_it(answer: str) -> None:
    with pytest.raises(BrokenCall, match="ended inside"):
        split(HERMES, answer)


def test_a_model_that_ends_before_the_last_brace_has_called() -> None:
    assert split(HERMES, '<tool_call>{"name": "f", "arguments": {}') == [*call("{}"), STOP]


def test_a_tag_with_nothing_behind_it_is_nothing() -> None:
    assert split(HERMES, "Hi <tool_call>\n") == [Text("Hi "), STOP]


def test_one_call_ends_the_answer() -> None:
    each = splitter(HERMES, one_call=True)
    pieces = each.feed(f"Hi{tagged(ONE)}{tagged(ONE)} more")
    assert pieces == [Text("Hi"), *call("{}")]
    assert each.ended
    assert each.feed("more") == []
    assert each.finish("length") == [STOP]


def test_one_call_may_end_with_the_model() -> None:
    assert split(HERMES, '<tool_call>{"name": "f", "arguments": {}', one_call=True) == [*call("{}"), STOP]
