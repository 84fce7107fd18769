"""The grammar of a stream: whatever the pieces and however they are cut."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.engine.port import End, Piece, Started, Text, Thinking, ToolArguments, ToolEnd, ToolStart, Usage
from node.translate.answer import accumulate
from node.translate.stream import Event, MessageMachine
from tests.stream_checker import check_stream

Runs = list[tuple[str, str]]


def machine(stops: tuple[str, ...] = (), usage: Usage | None = None) -> MessageMachine:
    return MessageMachine(
        message_id="msg_1",
        model="b3os/test",
        stops=stops,
        usage=usage or Usage(7, 3),
        extension=lambda: {"node": "n1"},
    )


def play(pieces: list[Piece], stops: tuple[str, ...] = ()) -> list[Event]:
    subject = machine(stops)
    events: list[Event] = []
    for piece in pieces:
        events += subject.feed(piece)
        if subject.stop_reason is not None:
            break
    return events


def pieces_of(runs: Runs, size: int) -> list[Piece]:
    pieces: list[Piece] = [Started()]
    for kind, text in runs:
        make = Text if kind == "text" else Thinking
        pieces += [make(text[at : at + size]) for at in range(0, len(text), size)]
    return [*pieces, End("stop")]


runs = st.lists(st.tuples(st.sampled_from(["text", "thinking"]), st.text("ab<é", max_size=12)), max_size=5)


@given(runs, st.integers(1, 13), st.lists(st.text("ab<", min_size=1, max_size=3), max_size=2))
def test_any_cut_of_the_same_pieces_gives_a_legal_stream_and_the_same_message(
    runs: Runs, size: int, stops: list[str]
) -> None:
    cut, whole = play(pieces_of(runs, size), tuple(stops)), play(pieces_of(runs, 99), tuple(stops))
    check_stream(cut)
    check_stream(whole)
    assert accumulate(cut) == accumulate(whole)


def test_text_that_is_held_back_keeps_its_place_in_front_of_what_follows() -> None:
    events = play([Started(), Text("xa"), Text("c"), End("stop")], ("ab",))
    assert accumulate(events)["content"] == [{"type": "text", "text": "xac"}]


def test_thinking_closes_before_the_first_text_and_carries_a_signature() -> None:
    events = play([Started(), Thinking("hm"), Text("yes"), End("stop")])
    check_stream(events)
    thinking, text = accumulate(events)["content"]
    assert (thinking["thinking"], text["text"]) == ("hm", "yes")
    assert thinking["signature"]


def test_an_empty_answer_holds_one_empty_text_block() -> None:
    events = play([Started(), End("stop")])
    check_stream(events)
    assert accumulate(events)["content"] == [{"type": "text", "text": ""}]


def test_a_stop_sequence_at_the_very_start_leaves_one_empty_text_block() -> None:
    message = accumulate(play([Started(), Text("STOP and more"), End("stop")], ("STOP",)))
    assert message["content"] == [{"type": "text", "text": ""}]
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "STOP")


def test_stop_sequences_are_not_looked_for_in_thinking() -> None:
    message = accumulate(play([Started(), Thinking("a STOP b"), Text("c"), End("stop")], ("STOP",)))
    assert message["content"][0]["thinking"] == "a STOP b"
    assert message["stop_reason"] == "end_turn"


@pytest.mark.parametrize(("reason", "expected"), [("stop", "end_turn"), ("length", "max_tokens")])
def test_the_engine_s_reason_becomes_the_contract_s(reason: Any, expected: str) -> None:
    message = accumulate(play([Started(), Text("a"), End(reason)]))
    assert (message["stop_reason"], message["stop_sequence"]) == (expected, None)


def test_a_complete_tool_call_ends_with_tool_use_and_its_input() -> None:
    pieces: list[Piece] = [
        Started(),
        Text("ok "),
        ToolStart("chatcmpl-tool-1", "f"),
        ToolArguments('{"a"'),
        ToolArguments(":1}"),
        ToolEnd(),
    ]
    events = play([*pieces, End("stop")])
    check_stream(events)
    message = accumulate(events)
    expected = {"type": "tool_use", "id": "chatcmpl-tool-1", "name": "f", "input": {"a": 1}}
    assert orjson.loads(orjson.dumps(message["content"][1])) == expected
    assert message["stop_reason"] == "tool_use"
    deltas = [event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta"]
    assert orjson.loads("".join(deltas)) == {"a": 1}


@pytest.mark.parametrize("value", ["[" * 1000 + "]" * 1000, "1234567890123456789012345", "0.10000000000000000001"])
def test_a_call_s_input_is_told_as_it_was_written(value: str) -> None:
    text = f'{{"a": {value}}}'
    pieces: list[Piece] = [Started(), ToolStart("chatcmpl-tool-1", "f"), ToolArguments(text), ToolEnd(), End("stop")]
    assert f'"input":{text}'.encode() in orjson.dumps(accumulate(play(pieces)))


def test_a_tool_call_that_was_cut_is_left_out_rather_than_invented() -> None:
    message = accumulate(play([Started(), ToolStart("chatcmpl-tool-1", "f"), ToolArguments('{"a"'), End("length")]))
    assert message["content"] == [{"type": "text", "text": ""}]
    assert message["stop_reason"] == "max_tokens"


def test_usage_is_real_at_both_ends_and_read_when_it_is_written() -> None:
    usage = Usage(11)
    subject = machine(usage=usage)
    (start,) = subject.feed(Started())
    usage.output_tokens = 5
    delta = subject.feed(End("stop"))[-2]
    assert start["message"]["usage"]["input_tokens"] == 11
    assert delta["usage"] == {"input_tokens": 11, "output_tokens": 5}
    assert delta["b3os"] == {"node": "n1"}
