"""The table "Streaming" of docs/wire.md, over `tests/stream_checker.py`, which knows the grammar."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.bodies import TIME
from tests.contract.service import Script, Service
from tests.stream_checker import Event, check_stream, read_frames

LONG: Script = [
    ["thinking", "Hm"],
    ["thinking", ", yes."],
    ["text", "Hel"],
    ["text", "lo"],
    ["tool", "get_time", {"zone": "Europe/Paris", "n": [1, 2, {"a": None}]}],
    ["tool", "get_time", {}],
    ["text", "Bye."],
]


def events_of(service: Service, script: Script = LONG, **fields: Any) -> list[Event]:
    return service.ask(script, stream=True, tools=[TIME], thinking={"type": "adaptive"}, **fields).events


def deltas(events: list[Event], kind: str) -> list[str]:
    found = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return [
        next(value for name, value in delta.items() if name != "type") for delta in found if delta["type"] == kind
    ]


def without_ids(blocks: list[Any]) -> list[Any]:
    return [{name: value for name, value in block.items() if name != "id"} for block in blocks]


@pytest.mark.parametrize("step", ["fail", "crash"])
def test_streaming_the_head_waits_for_the_first_token(service: Service, step: str) -> None:
    answer = service.ask([["pause", 0.02], [step]], stream=True)
    assert not answer.is_stream
    assert answer.status in (500, 503)
    assert service.ask([["pause", 0.02], ["text", "a"]], stream=True).events


def test_streaming_order_is_start_blocks_delta_stop(service: Service) -> None:
    types = [event["type"] for event in events_of(service)]
    assert types[0] == "message_start"
    assert types[-2:] == ["message_delta", "message_stop"]
    assert set(types[1:-2]) == {"content_block_start", "content_block_delta", "content_block_stop"}


def test_streaming_blocks_never_interleave_and_count_up(service: Service) -> None:
    starts = [event for event in events_of(service) if event["type"] == "content_block_start"]
    assert [(event["index"], event["content_block"]["type"]) for event in starts] == [
        (0, "thinking"),
        (1, "text"),
        (2, "tool_use"),
        (3, "tool_use"),
        (4, "text"),
    ]


def test_streaming_deltas_belong_to_their_blocks(service: Service) -> None:
    events = events_of(service)
    assert deltas(events, "thinking_delta") == ["Hm", ", yes."]
    assert len(deltas(events, "signature_delta")) == 1
    assert deltas(events, "text_delta") == ["Hel", "lo", "Bye."]
    parts = [event for event in events if event.get("delta", {}).get("type") == "input_json_delta"]
    first = "".join(event["delta"]["partial_json"] for event in parts if event["index"] == 2)
    assert json.loads(first) == {"zone": "Europe/Paris", "n": [1, 2, {"a": None}]}
    assert len([event for event in parts if event["index"] == 2]) > 2


def test_streaming_deltas_of_a_call_that_was_cut_end_with_max_tokens(service: Service) -> None:
    events = events_of(service, [["text", "a"], ["cut", "get_time", '{"zone": "Eur']])
    assert "".join(deltas(events, "input_json_delta")) == '{"zone": "Eur'
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"


def test_streaming_empty_values_are_where_sdks_append(service: Service) -> None:
    events = events_of(service)
    assert events[0]["message"]["content"] == []
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert starts[0] == {"type": "thinking", "thinking": "", "signature": ""}
    assert starts[1] == {"type": "text", "text": ""}
    assert starts[2]["input"] == {}


def test_streaming_usage_is_right_at_both_ends(service: Service) -> None:
    whole = service.ask(LONG, tools=[TIME], thinking={"type": "adaptive"}).message["usage"]
    events = events_of(service)
    assert events[0]["message"]["usage"] == {"input_tokens": whole["input_tokens"], "output_tokens": 0}
    assert events[-2]["usage"] == whole
    assert whole["output_tokens"] == len(LONG)


@pytest.mark.parametrize(("step", "kind"), [("fail", "overloaded_error"), ("crash", "api_error")])
def test_streaming_error_ends_the_stream_in_the_node_s_shape(service: Service, step: str, kind: str) -> None:
    answer = service.ask([["text", "a"], [step]], stream=True)
    events = read_frames(answer.raw)
    check_stream(events, may_fail=True)
    error = events[-1]
    assert error["error"]["type"] == kind
    assert error["request_id"] == answer.headers["request-id"]
    assert error["b3os"]["code"] in ("infer_backend_unavailable", "internal")


def test_streaming_no_other_events_come_and_none_after_the_last(service: Service) -> None:
    known = {"message_start", "message_delta", "message_stop", "ping", "error"}
    known |= {f"content_block_{name}" for name in ("start", "delta", "stop")}
    for script in (LONG, [], [["text", "a"], ["crash"]]):
        raw = service.ask(script, stream=True, tools=[TIME]).raw
        assert {event["type"] for event in read_frames(raw)} <= known


@pytest.mark.parametrize("script", [LONG, [], [["repeat", 50, ["text", "é"]]], [["tool", "get_time", {}]]])
@pytest.mark.parametrize("stops", [None, ["lo"], ["él", "B"]])
def test_streaming_both_forms_agree(service: Service, script: Script, stops: list[str] | None) -> None:
    events = events_of(service, script, stop_sequences=stops)
    whole = service.ask(script, tools=[TIME], thinking={"type": "adaptive"}, stop_sequences=stops).message
    blocks: list[Any] = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    for index, block in enumerate(blocks):
        parts = [event["delta"] for event in events if event.get("index") == index and "delta" in event]
        for field in ("text", "thinking", "signature"):
            if field in block:
                block[field] = "".join(part.get(field, "") for part in parts)
        if "input" in block:
            block["input"] = json.loads("".join(part["partial_json"] for part in parts))
    assert without_ids(blocks) == without_ids(whole["content"])
    assert events[-2]["delta"] == {name: whole[name] for name in ("stop_reason", "stop_sequence")}
