"""Calls in XML: where a value ends, what types make of it, and what breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from node.engine.dialect import BrokenCall
from node.engine.port import End, Piece, Text, ToolArguments, ToolEnd, ToolStart
from tests.splitting import HERMES, QWEN, split, splitter, tool

STOP = End("stop")
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "n": {"type": "integer"}},
}
F = [tool(SCHEMA)]


def parameter(value: str, key: str = "a") -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


def function(inside: str, name: str = "f") -> str:
    return f"<function={name}>\n{inside}</function>"


def tagged(inside: str) -> str:
    return f"<tool_call>\n{inside}\n</tool_call>"


def call(arguments: Mapping[str, Any], number: int = 0) -> list[Piece]:
    return [ToolStart(f"id{number}", "f"), ToolArguments(json.dumps(arguments, ensure_ascii=False)), ToolEnd()]


def value_of(raw: str, schema: Mapping[str, Any] | None = None) -> Any:
    """What comes out for `<parameter=a>`, whatever the chunks."""
    tools = [tool(SCHEMA if schema is None else {"properties": {"a": schema}})]
    found = [split(QWEN, tagged(function(parameter(raw))), tools, size=size) for size in (None, 1, 7)]
    assert found[0] == found[1] == found[2]
    assert isinstance(found[0][1], ToolArguments)
    return json.loads(found[0][1].json)["a"]


def test_parameters_become_one_object() -> None:
    answer = tagged(function(parameter('x\n"y" é\\') + parameter("5", "n")))
    assert split(QWEN, answer, F) == [*call({"a": 'x\n"y" é\\', "n": 5}), STOP]


def test_strings_stream() -> None:
    each = splitter(QWEN, F)
    assert each.feed("<tool_call>\n<function=f") == []
    assert each.feed(">\n<parameter=a") == [ToolStart("id0", "f")]
    assert each.feed(">\nx y\n") == [ToolArguments('{"a": '), ToolArguments('"x y')]
    assert each.feed("z <b") == [ToolArguments("\\nz <b")]
    assert each.feed("\n</para") == []
    assert each.feed("meter>\n") == []
    assert each.feed("</function>") == [ToolArguments('"'), ToolArguments("}"), ToolEnd()]
    assert each.feed("\n</tool_call>") == []


def test_a_call_without_parameters_has_none() -> None:
    for answer in (tagged(function("")), "<tool_call><function=f></tool_call>", tagged("<function=f></parameter>")):
        assert split(QWEN, answer, F) == [*call({}), STOP]


def test_several_calls_follow_each_other() -> None:
    both = [*call({"a": "x"}), *call({"a": "y"}, 1), STOP]
    first, second = function(parameter("x")), function(parameter("y"))
    assert split(QWEN, tagged(first) + "\n" + tagged(second), F) == both
    assert split(QWEN, tagged(first + "\n" + second), F) == both


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("<parameter=a>x</parameter>", "x"),
        ("<parameter=a>\nx\n</parameter>", "x"),
        ("<parameter=a>\n\n x \n\n</parameter>", "\n x \n"),
        ("<parameter=a></parameter>", ""),
        ("<parameter=a>\n</parameter>", ""),
        ("<parameter=a>\n\n</parameter>", ""),
        ("<parameter= a >x</parameter>", "x"),
    ],
)
def test_one_line_break_at_each_end_of_a_value_belongs_to_the_tags(written: str, value: str) -> None:
    for size in (None, 1):
        assert split(QWEN, tagged(function(written)), F, size=size) == [*call({"a": value}), STOP]


@pytest.mark.parametrize(
    "value",
    [
        "<root>\n<parameter>x</parameter>\n<parameter>y</parameter>\n</root>",
        "if a</parameter>b",
        "</parameter>",
        "x\n</parameter>\n\n</parameter> \n",
        "</function>\n</functions>",
        "</function>\nfunction",
        "</tool_call>\n<tool_call>\n<function=f>",
        "\n<parameter=other>\nx",
        "\n<parameter=a>\nx",
        "text <parameter=b>x",
        "\n<parameter=b<b>",
        "\n<parameter=" + "b" * 600 + ">",
        "\n<parameter=",
        "</param\n<para<p</function</tool_call<",
        "<think></think>",
        "\n" * 50,
    ],
)
def test_a_value_may_hold_markup(value: str) -> None:
    assert value_of(value) == value


@pytest.mark.parametrize(
    "inside",
    [
        "<parameter=a>\nx\n<parameter=b>\ny\n</parameter>\n</function>\n</tool_call>",
        "<parameter=a>\nx\n</parameter>\n<parameter=b>\ny\n</function>\n</tool_call>",
        "<parameter=a>\nx\n<parameter=b>\ny\n</function>",
        "<parameter=a>\nx\n</parameter>\n<parameter=b>\ny\n</parameter>\n</tool_call>",
        "<parameter=a>\nx\n</parameter>\n<parameter=b>\ny\n</parameter>",
        "<parameter=a>\nx\n</parameter>\n<parameter=b>\ny\n</parameter>\n</func",
        "<parameter=a>x</parameter><parameter=b>y</parameter></function>",
    ],
)
def test_ends_may_be_missing(inside: str) -> None:
    for size in (None, 1):
        assert split(QWEN, f"<tool_call>\n<function=f>\n{inside}", F, size=size) == [
            *call({"a": "x", "b": "y"}),
            STOP,
        ]


def test_an_empty_value_may_lack_its_end() -> None:
    answer = tagged(function("<parameter=a>\n<parameter=b>\ny\n</parameter>\n"))
    assert split(QWEN, answer, F) == [*call({"a": "", "b": "y"}), STOP]


def test_the_next_call_ends_one_that_has_no_end() -> None:
    one = "<tool_call>\n<function=f>\n" + parameter("x")
    assert split(QWEN, one + one, F) == [*call({"a": "x"}), *call({"a": "x"}, 1), STOP]


def test_the_first_of_two_values_of_a_key_wins() -> None:
    answer = tagged(function(parameter("x") + parameter("5", "n") + parameter("y")))
    assert split(QWEN, answer, F) == [*call({"a": "x", "n": 5}), STOP]


def test_a_known_function_without_its_tag_is_a_call() -> None:
    answer = "I will.\n\n" + function(parameter("x")) + "\n</tool_call>"
    for size in (None, 1):
        assert split(QWEN, answer, F, size=size) == [Text("I will."), *call({"a": "x"}), STOP]


@pytest.mark.parametrize(
    "text", ["Write <function=g> and", "<function=", "<function=f", "<function=f\nx>", "<function=<"]
)
def test_an_unknown_function_without_its_tag_is_text(text: str) -> None:
    for size in (None, 1):
        assert split(QWEN, text, F, size=size) == [Text(text), STOP]
    assert split(HERMES, "<function=f>", F) == [Text("<function=f>"), STOP]


@pytest.mark.parametrize(
    "inside",
    [
        "<function=>",
        "<function=f\nx>",
        "<function=f<b>",
        "<function=" + "f" * 600,
        '<function=f>\n{"a": 1}\n</function>',
        "<function=f><parameter=>",
        "<function=f><parameter=a\nx>",
        "<function=f></func>",
        "<function=f><tool_call>",
        "<function=f>" + parameter("x") + "then",
    ],
)
def test_what_begins_like_a_call_and_is_none_breaks(inside: str) -> None:
    for size in (None, 1):
        with pytest.raises(BrokenCall):
            split(QWEN, tagged(inside), F, size=size)


@pytest.mark.parametrize(
    "answer",
    [
        "<tool_call>\n<function=f",
        "<tool_call>\n<function=f>",
        "<tool_call>\n<function=f>\n<parameter=a",
        "<tool_call>\n<function=f>\n<parameter=a>\nx",
        "<tool_call>\n<function=f>\n<parameter=a>\nx\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parame",
    ],
)
def test_a_model_that_ends_inside_a_call_breaks_it(answer: str) -> None:
    with pytest.raises(BrokenCall, match="ended inside"):
        split(QWEN, answer, F)


def test_a_call_that_is_cut_has_no_end() -> None:
    answer = tagged(function(parameter("x\ny")))
    for end in range(len(answer)):
        pieces = split(QWEN, answer[:end], F, reason="length")
        assert pieces[-1] == End("length")
        assert (ToolEnd() in pieces) == ("</function>" in answer[:end])


def test_one_call_ends_the_answer() -> None:
    each = splitter(QWEN, F, one_call=True)
    pieces = each.feed(tagged(function(parameter("x")))[:-13])
    assert pieces[-1] == ToolEnd()
    assert each.ended
    assert each.feed(tagged(function(""))) == []
    assert each.finish("stop") == [STOP]


def test_a_forced_end_of_thinking_is_taken_out_of_a_value() -> None:
    answer = "hm<tool_call>\n<function=f>\n<parameter=a>\nx</think>y\n</parameter>\n</function>\n</tool_call>ok"
    for size in (None, 1):
        assert split(QWEN, answer, F, thinks=True, size=size)[1:] == [*call({"a": "xy"}), Text("ok"), STOP]


def test_parameters_of_unknown_tools_pass() -> None:
    pieces = split(QWEN, tagged(function(parameter("5") + parameter("x y", "b"), "g")), F)
    assert pieces[:2] == [ToolStart("id0", "g"), ToolArguments('{"a": 5, "b": "x y"}')]
