"""However an answer is cut into chunks, its pieces are the same; and what a call makes is JSON or nothing."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from node.engine.dialect import BrokenCall, Dialect
from node.engine.port import End, Piece, Started, Text, Thinking, Tool, ToolArguments, ToolEnd, ToolStart
from tests.splitting import HERMES, QWEN, joined, split, splitter, tool

TOOLS = [
    tool(
        {
            "properties": {
                "a": {"type": "string"},
                "n": {"type": "integer"},
                "o": {"type": ["string", "null"]},
                "e": {"enum": ["x", "y"]},
                "l": {"type": ["array", "string"]},
            }
        }
    )
]
WORDS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "</function>", "</parameter>"),
    *(
        "<parameter=a>",
        "<parameter=n>",
        "<parameter=e>",
        "<parameter=l>",
        "<parameter=zz>",
        "<parameter=",
        "\n",
        "\n\n",
    ),
    *('{"name": "f", "arguments": ', '{"arguments": ', '{"a": "', '"name": "g"', '"', "{", "}", "[", "]", ",", ":"),
    *(
        "\\",
        "\\u",
        "d83d",
        "\\ude00",
        "\\n",
        "\x01",
        "é",
        "😀",
        " ",
        "5",
        "-1.0e",
        "null",
        "true",
        "None",
        "x",
        "<",
        ">",
    ),
    *("<tool", "</thi", "nk>", "</para", "meter>", "word ", "NaN"),
)
ANSWERS = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=40).map("".join)
CALLS = st.lists(
    st.sampled_from(WORDS[7:]) | st.sampled_from(["</parameter>\n", "</function>\n</tool_call>"]), max_size=25
).map("".join)


def read(
    dialect: Dialect, chunks: Sequence[str], tools: Sequence[Tool], thinks: bool, reason: Literal["stop", "length"]
) -> list[Piece | str]:
    """The joined pieces, and the fault if there was one."""
    each = splitter(dialect, tools, thinks=thinks)
    pieces: list[Piece] = []
    try:
        for chunk in chunks:
            pieces += each.feed(chunk)
        pieces += each.finish(reason)
    except BrokenCall as fault:
        return [*joined(pieces), str(fault)]
    return [*joined(pieces)]


def cut(answer: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(answer) + 1) for place in places), len(answer)]
    return [answer[start:end] for start, end in itertools.pairwise(edges)]


def check(answer: str, places: list[int], qwen: bool, calls: bool, thinks: bool, cut_off: bool) -> list[Piece | str]:
    dialect, tools = (QWEN if qwen else HERMES), (TOOLS if calls else [])
    reason: Literal["stop", "length"] = "length" if cut_off else "stop"
    whole = read(dialect, [answer], tools, thinks, reason)
    assert read(dialect, list(answer), tools, thinks, reason) == whole
    assert read(dialect, cut(answer, places), tools, thinks, reason) == whole
    return whole


def check_pieces(pieces: list[Piece | str]) -> None:
    """Calls open and close, a complete one is an object, nothing is empty, and no tag of a call is text."""
    arguments: str | None = None
    for piece in pieces:
        match piece:
            case ToolStart(_, name):
                assert name
                assert arguments is None
                arguments = ""
            case ToolArguments(part):
                assert arguments is not None
                arguments += part
            case ToolEnd():
                assert arguments is not None
                assert isinstance(json.loads(arguments), dict)
                arguments.encode()
                arguments = None
            case Text(text) | Thinking(text):
                assert text
                assert arguments is None
            case Started() | End() | str():
                pass


FLAGS = {"qwen": st.booleans(), "calls": st.booleans(), "thinks": st.booleans(), "cut_off": st.booleans()}
PLACES = st.lists(st.integers(0, 500), max_size=8)


@settings(max_examples=600, deadline=None)
@given(answer=ANSWERS, places=PLACES, **FLAGS)
def test_chunks_do_not_matter(answer: str, places: list[int], **flags: bool) -> None:
    check_pieces(check(answer, places, **flags))


@settings(max_examples=600, deadline=None)
@given(inside=CALLS, places=PLACES, qwen=st.booleans(), thinks=st.booleans(), cut_off=st.booleans())
@example(
    inside='{"name": "f", "arguments": {"a": "\\ud83d\\ude00"}}', places=[], qwen=False, thinks=True, cut_off=False
)
def test_chunks_do_not_matter_inside_a_call(inside: str, places: list[int], qwen: bool, **flags: bool) -> None:
    opening = (
        "hm<tool_call>\n<function=f>\n<parameter=a>\n" if qwen else 'hm<tool_call>{"name": "f", "arguments": {"a": '
    )
    check_pieces(check(opening + inside, places, qwen, True, **flags))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    arguments=st.dictionaries(st.text(), JSON),
    indent=st.sampled_from([None, 2]),
    ascii_only=st.booleans(),
    size=st.integers(1, 9),
)
def test_any_json_object_comes_through_hermes(
    arguments: dict[str, Any], indent: int | None, ascii_only: bool, size: int
) -> None:
    text = json.dumps({"name": "f", "arguments": arguments}, indent=indent, ensure_ascii=ascii_only)
    pieces = split(HERMES, f"<tool_call>\n{text}\n</tool_call>", TOOLS, size=size)
    assert isinstance(pieces[1], ToolArguments)
    assert json.loads(pieces[1].json) == arguments


@settings(deadline=None)
@given(
    text=st.lists(st.sampled_from(WORDS[7:]) | st.text(max_size=5), max_size=12).map("".join), size=st.integers(1, 9)
)
def test_any_text_but_the_end_of_a_call_comes_through_xml(text: str, size: int) -> None:
    text = text.replace("</function>", "").replace("</parameter>", "").replace("<parameter=", "<parameter =")
    answer = f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
    pieces = split(QWEN, answer, TOOLS, size=size)
    assert isinstance(pieces[1], ToolArguments)
    assert json.loads(pieces[1].json) == {"a": text}


FILE = "<tool_call>\n<function=f>\n<parameter=a>\n"
HOSTILE = {
    "line breaks": "\n",
    "opening brackets": "<",
    "ends of parameters": "</parameter>\n",
    "ends of functions": "\n</function>\n",
    "parameters": "\n<parameter=n>",
    "half parameters": "\n<parameter=",
    "calls": "<tool_call>",
    "functions": "<function=f>",
    "complete calls": '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
    "ends of thinking": "</think>",
    "escaped quotes": '\\"',
    "halves of pairs": "\\ud800",
    "numbers": "1 ",
    "brackets": "[]",
}


def count_calls(answer: str, size: int) -> int:
    """Calls of Python and of C: work that can be counted, whatever else the machine does."""
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        read(QWEN, [answer[at : at + size] for at in range(0, len(answer), size)], TOOLS, True, "stop")
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("size", [4, 1_000_000])
@pytest.mark.parametrize(
    "start", ["", "hm</think>", "<tool_call>", FILE, FILE.replace("=a", "=l"), '<tool_call>{"arguments": {"a": "']
)
@pytest.mark.parametrize("name", HOSTILE)
def test_the_work_is_linear(name: str, start: str, size: int) -> None:
    short, long = (start + HOSTILE[name] * (chars // len(HOSTILE[name])) for chars in (8000, 80_000))
    assert count_calls(long, size) < 15 * count_calls(short, size) + 1000  # were it quadratic, 100 times
