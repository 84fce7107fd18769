"""Any legal sequence of engine pieces, cut anywhere, with any stop sequences: the stream and the whole answer.

What an answer must hold is written here once more, as a definition over runs, and compared with the block machine,
with the accumulated whole and with what the official SDK makes of the bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Literal

import anthropic
import httpx2
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.engine.port import End, Piece, Started, Text, Thinking, ToolArguments, ToolEnd, ToolStart, Usage
from node.sse import encode_event
from node.translate.answer import accumulate
from node.translate.stream import Event, MessageMachine
from tests.stream_checker import check_stream, read_frames

Block = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a model wrote: runs of one kind, and how it ended. `cut` is a last call whose arguments are not whole."""

    runs: list[tuple[Literal["text", "thinking", "call"], str]]
    cut: str | None
    reason: Literal["stop", "length"]


CHARACTERS = st.sampled_from('ab<é\U0001f600"\n\\ ')
words = st.text(CHARACTERS, min_size=1, max_size=10)
numbers = st.integers(-(2**53), 2**53)  # what every reader of JSON keeps exact
inputs = st.dictionaries(words, words | numbers | st.booleans() | st.none() | st.lists(words, max_size=2), max_size=3)
runs = st.lists(
    st.tuples(st.just("text"), words)
    | st.tuples(st.just("thinking"), words)
    | st.tuples(st.just("call"), inputs.map(json.dumps)),
    max_size=6,
)
whole_answers = st.builds(Answer, runs, st.none(), st.sampled_from(["stop", "length"]))
cut_calls = inputs.map(json.dumps).flatmap(lambda text: st.integers(0, len(text) - 1).map(lambda end: text[:end]))
cut_answers = st.builds(Answer, runs, cut_calls, st.just("length"))
stop_lists = st.lists(st.text(CHARACTERS, min_size=1, max_size=3), max_size=3)
cuts = st.lists(st.integers(1, 12), max_size=8)
"""Sizes of the pieces, over and over; none means one piece a run."""


class Cutter:
    """Cuts texts into pieces whose sizes take turns."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes, self._turn = sizes, 0

    def cut(self, text: str) -> list[str]:
        points = [0]
        while self._sizes and points[-1] < len(text):
            points.append(min(len(text), points[-1] + self._sizes[self._turn % len(self._sizes)]))
            self._turn += 1
        return [text[begin:end] for begin, end in pairwise(points)] if len(points) > 1 else [text]


def pieces_of(answer: Answer, sizes: list[int]) -> list[Piece]:
    cutter = Cutter(sizes)
    pieces: list[Piece] = [Started()]
    for index, (kind, text) in enumerate(answer.runs):
        match kind:
            case "text":
                pieces += map(Text, cutter.cut(text))
            case "thinking":
                pieces += map(Thinking, cutter.cut(text))
            case "call":
                pieces += [ToolStart(f"call_{index}", "f"), *map(ToolArguments, cutter.cut(text)), ToolEnd()]
    if answer.cut is not None:
        pieces += [ToolStart("call_cut", "f"), *map(ToolArguments, cutter.cut(answer.cut))]
    return [*pieces, End(answer.reason)]


def play(answer: Answer, sizes: list[int], stops: list[str]) -> list[Event]:
    machine = MessageMachine(
        message_id="msg_1", model="b3os/test", stops=stops, usage=Usage(7, 3), extension=lambda: {"node": "n1"}
    )
    events: list[Event] = []
    for piece in pieces_of(answer, sizes):
        events += machine.feed(piece)
        if machine.stop_reason is not None:
            break
    return events


def find_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The first sequence to be complete, the longest of those that end together."""
    for end in range(1, len(text) + 1):
        if ending := [stop for stop in stops if text[:end].endswith(stop)]:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


def expected(answer: Answer, stops: list[str]) -> tuple[list[Block], str, str | None]:
    """Blocks, stop reason and stop sequence, by definition."""
    blocks: list[Block] = []
    for index, (kind, text) in enumerate(joined(answer.runs)):
        match kind:
            case "call":
                blocks.append({"type": "tool_use", "id": f"call_{index}", "name": "f", "input": json.loads(text)})
            case "thinking":
                blocks.append({"type": "thinking", "thinking": text})
            case _:
                shown, stop = find_stop(text, stops)
                if shown:
                    blocks.append({"type": "text", "text": shown})
                if stop is not None:
                    return blocks or [{"type": "text", "text": ""}], "stop_sequence", stop
    called = any(block["type"] == "tool_use" for block in blocks)
    reason = "max_tokens" if answer.reason == "length" else "tool_use" if called else "end_turn"
    return blocks or [{"type": "text", "text": ""}], reason, None


def read_whole(events: list[Event]) -> dict[str, Any]:
    """The answer of one piece, as who gets its bytes reads it."""
    return dict(json.loads(orjson.dumps(accumulate(events))))


def joined(runs: list[Any]) -> list[tuple[str, str]]:
    """Neighbours of one kind are one block, calls excepted."""
    groups = groupby(enumerate(runs), key=lambda item: (item[1][0], item[0] if item[1][0] == "call" else None))
    return [(kind, "".join(run[1] for _, run in group)) for (kind, _), group in groups]


def without_ids(blocks: list[Block]) -> list[Block]:
    """Signatures are opaque, and ids are the engine's."""
    return [{name: block[name] for name in block if name not in ("signature", "id")} for block in blocks]


@settings(deadline=None)
@given(whole_answers | cut_answers, cuts, stop_lists)
def test_any_answer_is_a_legal_stream_and_the_message_that_its_definition_says(
    answer: Answer, sizes: list[int], stops: list[str]
) -> None:
    events = play(answer, sizes, stops)
    check_stream(events)
    message = read_whole(events)
    blocks, reason, stop = expected(answer, stops)
    assert without_ids(message["content"]) == without_ids(blocks)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, stop)
    assert message["usage"] == {"input_tokens": 7, "output_tokens": 3}


@settings(deadline=None)
@given(whole_answers | cut_answers, cuts, cuts, stop_lists)
def test_the_same_answer_cut_elsewhere_is_the_same_message(
    answer: Answer, sizes: list[int], others: list[int], stops: list[str]
) -> None:
    first, second = play(answer, sizes, stops), play(answer, others, stops)
    assert read_whole(first) == read_whole(second)
    starts = [[event for event in events if event["type"] == "content_block_start"] for events in (first, second)]
    assert starts[0] == starts[1]


@pytest.fixture(scope="module")
def bodies() -> list[bytes]:
    """What the SDK will be answered, the last first."""
    return []


@pytest.fixture(scope="module")
def sdk(bodies: list[bytes]) -> anthropic.Anthropic:
    """The official SDK, answered from memory."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=bodies.pop())

    transport = anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(respond))
    return anthropic.Anthropic(base_url="http://test", api_key="k", max_retries=0, http_client=transport)


@settings(deadline=None)
@given(whole_answers, cuts, stop_lists)
def test_the_official_sdk_reads_the_whole_answer_from_the_stream(
    sdk: anthropic.Anthropic, bodies: list[bytes], answer: Answer, sizes: list[int], stops: list[str]
) -> None:
    events = play(answer, sizes, stops)
    raw = b"".join(map(encode_event, events))
    assert read_frames(raw) == events
    bodies.append(raw)
    with sdk.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]) as stream:
        read = stream.get_final_message().to_dict()
    whole = read_whole(events)
    assert read["content"] == whole["content"]
    for name in ("id", "type", "role", "model", "stop_reason", "stop_sequence", "usage"):
        assert read[name] == whole[name], name


@settings(deadline=None)
@given(cut_answers, cuts)
def test_a_call_that_was_cut_is_in_no_whole_answer(answer: Answer, sizes: list[int]) -> None:
    """The stream can't take it back; the whole answer can, and an invented input could be run."""
    message = read_whole(play(answer, sizes, []))
    assert message["stop_reason"] == "max_tokens"
    assert "call_cut" not in [block.get("id") for block in message["content"]]
    assert message["content"]
