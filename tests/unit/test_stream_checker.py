"""The checker of streams, with streams that break one rule each."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.stream_checker import Event, check_stream, read_frames

MESSAGE: Event = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 0},
}
USAGE = {"input_tokens": 1, "output_tokens": 9}


def start(index: int, kind: str, **fields: object) -> Event:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def delta(index: int, kind: str, **fields: str) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> Event:
    return {"type": "content_block_stop", "index": index}


LEGAL: list[Event] = [
    {"type": "message_start", "message": MESSAGE},
    start(0, "thinking", thinking="", signature=""),
    {"type": "ping"},
    delta(0, "thinking_delta", thinking="hm"),
    delta(0, "signature_delta", signature="s"),
    stop(0),
    start(1, "text", text=""),
    delta(1, "text_delta", text="a"),
    stop(1),
    start(2, "tool_use", id="t", name="f", input={}),
    delta(2, "input_json_delta", partial_json='{"a"'),
    delta(2, "input_json_delta", partial_json=":1}"),
    stop(2),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": USAGE,
        "b3os": {},
    },
    {"type": "message_stop"},
]
ERROR: Event = {"type": "error", "error": {"type": "api_error", "message": "m"}, "request_id": "r", "b3os": {}}

Damage = Callable[[list[Event]], object]
DAMAGES: dict[str, Damage] = {
    "no start": lambda events: events.pop(0),
    "two starts": lambda events: events.insert(1, events[0]),
    "ping first": lambda events: events.insert(0, {"type": "ping"}),
    "a foreign event": lambda events: events.insert(2, {"type": "vendor"}),
    "content in the start": lambda events: events[0]["message"].update(content=[{}]),
    "no usage in the start": lambda events: events[0]["message"].pop("usage"),
    "cache fields": lambda events: events[0]["message"]["usage"].update(cache_read_input_tokens=1),
    "a block that does not begin empty": lambda events: events[6]["content_block"].update(text="a"),
    "no empty signature": lambda events: events[1]["content_block"].pop("signature"),
    "a delta of another kind": lambda events: events.insert(4, delta(0, "text_delta", text="a")),
    "a delta of another block": lambda events: events[7].update(index=0),
    "no signature": lambda events: events.pop(4),
    "an empty signature": lambda events: events[4]["delta"].update(signature=""),
    "thinking behind the signature": lambda events: events.insert(5, events[3]),
    "an open block": lambda events: events.pop(8),
    "a block within a block": lambda events: events.insert(7, start(2, "text", text="")),
    "an index that is left out": lambda events: (events[9].update(index=3), events[12].update(index=3)),
    "a delta without a block": lambda events: events.pop(6),
    "input that is no object": lambda events: events[11]["delta"].update(partial_json=":"),
    "end_turn with a call": lambda events: events[13]["delta"].update(stop_reason="end_turn"),
    "a reason that is none": lambda events: events[13]["delta"].update(stop_reason="stop"),
    "a stop sequence without its reason": lambda events: events[13]["delta"].update(stop_sequence="a"),
    "another count of the prompt": lambda events: events[13]["usage"].update(input_tokens=2),
    "no delta of the message": lambda events: events.pop(13),
    "a ping behind the delta": lambda events: events.insert(14, {"type": "ping"}),
    "no end": lambda events: events.pop(),
    "a second end": lambda events: events.append({"type": "message_stop"}),
    "an error": lambda events: events.__setitem__(slice(13, None), [ERROR]),
    "no block": lambda events: events.__setitem__(slice(1, 13), []),
}


def test_the_legal_stream_passes() -> None:
    check_stream(LEGAL)


def test_an_error_ends_a_stream_where_it_may() -> None:
    check_stream([*LEGAL[:8], ERROR], may_fail=True)
    with pytest.raises(AssertionError):
        check_stream([*LEGAL[:8], ERROR, LEGAL[-1]], may_fail=True)


def test_a_call_may_be_cut_by_max_tokens_alone() -> None:
    events = copy.deepcopy(LEGAL)
    del events[11]
    events[-2]["delta"]["stop_reason"] = "max_tokens"
    check_stream(events)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_stream_that_breaks_a_rule_is_caught(name: str) -> None:
    events = copy.deepcopy(LEGAL)
    DAMAGES[name](events)
    with pytest.raises(AssertionError):
        check_stream(events)


@pytest.mark.parametrize(
    "raw",
    [
        b'data: {"type":"ping"}\n\n',
        b'event: ping\r\ndata: {"type":"ping"}\r\n\r\n',
        b'event: pong\ndata: {"type":"ping"}\n\n',
        b'event: ping\ndata: {"type":"ping"}\n',
        b': comment\n\nevent: ping\ndata: {"type":"ping"}\n\n',
    ],
)
def test_a_frame_that_sdks_would_drop_is_caught(raw: bytes) -> None:
    with pytest.raises((AssertionError, ValueError)):
        read_frames(raw)
