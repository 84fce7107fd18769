"""`POST /v1/infer/v1/messages` of a node over a real socket: heads, bodies, streams, and what is left running."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import aiohttp
import pytest

from node.engine.port import Engine
from shared.ids import REQUEST_ID, new_request_id
from tests.integration.node.conftest import HELD_S, PATH, Node, Start, node_token
from tests.stream_checker import Event, check_stream, read_frames

SAY = [["text", "Hel"], ["text", "lo"]]


async def events_of(response: aiohttp.ClientResponse) -> list[Event]:
    """Every event of a legal stream; it may end with an `error` event."""
    events = read_frames(await response.read())
    check_stream(events, may_fail=True)
    return events


async def until_idle(node: Node) -> None:
    """The engine's running count is back to 0."""
    async with asyncio.timeout(60):
        while node.engine.unfinished_requests():
            await asyncio.sleep(0.01)


async def refusal(response: aiohttp.ClientResponse) -> tuple[int, str, str | None]:
    """Status, code and param of a refusal whose body and headers are the contract's."""
    body = await response.json()
    assert body["type"] == "error"
    assert body["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    return response.status, body["b3os"]["code"], body["b3os"].get("param")


async def test_a_whole_answer_is_a_message_with_real_usage(node: Node) -> None:
    response = await node.post(SAY)
    message = await response.json()
    assert response.status == 200
    assert re.fullmatch(r"msg_[0-9a-f]{32}", message.pop("id"))
    timing = message["b3os"].pop("timing")
    assert timing["total_ms"] >= timing["model_ms"] >= 0
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "b3os/scripted",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 2},
        "b3os": {"route": "local", "node": "n1", "cached_tokens": 0},
    }


async def test_a_stream_has_the_order_and_fields_that_sdks_need(node: Node) -> None:
    response = await node.post(SAY, stream=True)
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["Cache-Control"] == "no-cache, no-transform"
    assert response.headers["X-Accel-Buffering"] == "no"
    events = await events_of(response)
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start = events[0]["message"]
    assert start["usage"] == {"input_tokens": 5, "output_tokens": 0}
    assert (start["content"], start["stop_reason"], start["type"], start["role"]) == (
        [],
        None,
        "message",
        "assistant",
    )
    assert events[1]["content_block"] == {"type": "text", "text": ""}
    assert events[5]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert events[5]["usage"] == {"input_tokens": 5, "output_tokens": 2}
    assert events[5]["b3os"]["timing"]["ttft_ms"] >= 0


async def test_ids_and_timing_are_on_every_answer(node: Node) -> None:
    request_id = new_request_id()
    token = {"Authorization": f"Bearer {node_token(request_id=request_id)}"}
    body = json.dumps({"model": "b3os/scripted", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})
    response = await node.send(body, **token)
    assert response.headers["request-id"] == response.headers["x-request-id"] == request_id
    names = [entry.partition(";")[0] for entry in response.headers["Server-Timing"].split(", ")]
    assert names == ["admission", "parse", "images", "render", "guide", "model", "total"]
    stream = await node.post(SAY, stream=True)
    assert "ttft;dur=" in stream.headers["Server-Timing"]
    assert "total" not in stream.headers["Server-Timing"]
    missing = await node.session.get(node.url + "/nowhere")
    assert REQUEST_ID.fullmatch(missing.headers["request-id"])
    assert await refusal(missing) == (404, "not_found", None)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_sequence_ends_the_answer_and_the_generation(node: Node, stream: bool) -> None:
    script = [["text", "one tw"], ["text", "o three"], ["repeat", 100_000, ["text", "more "]]]
    response = await node.post(script, stop_sequences=["two"], stream=stream)
    if stream:
        events = await events_of(response)
        delta, usage = events[-2]["delta"], events[-2]["usage"]
    else:
        message = await response.json()
        assert message["content"] == [{"type": "text", "text": "one "}]
        delta, usage = {key: message[key] for key in ("stop_reason", "stop_sequence")}, message["usage"]
    assert delta == {"stop_reason": "stop_sequence", "stop_sequence": "two"}
    assert usage["output_tokens"] == 2
    await until_idle(node)


async def test_max_tokens_cuts_the_answer(node: Node) -> None:
    message = await (await node.post([["repeat", 50, ["text", "a"]]], max_tokens=3)).json()
    assert (message["content"][0]["text"], message["stop_reason"]) == ("aaa", "max_tokens")
    assert message["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_token_is_plain_http(node: Node, stream: bool) -> None:
    response = await node.post([["fail"]], stream=stream)
    assert await refusal(response) == (503, "infer_backend_unavailable", None)
    assert response.headers["Retry-After"] == "5"
    crash = await node.post([["crash"]], stream=stream)
    assert await refusal(crash) == (500, "internal", None)
    assert (await crash.json())["error"]["message"] == f"internal error (request {crash.headers['request-id']})"
    await until_idle(node)


@pytest.mark.parametrize(("step", "kind"), [("fail", "overloaded_error"), ("crash", "api_error")])
async def test_a_failure_after_the_head_is_an_error_event_and_the_end(node: Node, step: str, kind: str) -> None:
    response = await node.post([["text", "Hel"], [step]], stream=True)
    events = await events_of(response)
    assert response.status == 200
    assert [event["type"] for event in events][-2:] == ["content_block_delta", "error"]
    assert events[-1]["error"]["type"] == kind
    assert events[-1]["request_id"] == response.headers["request-id"]
    await until_idle(node)


async def test_silence_is_broken_by_ping_events_between_the_others(start_node: Start) -> None:
    node, begun_s = await start_node(ping_after_s=0.05), time.monotonic()
    goes_on, raw = node.hold_pauses(), b""
    response = await node.post([["text", "a"], ["pause", HELD_S], ["text", "b"]], stream=True)
    while raw.count(b"event: ping") < 3:
        raw += await response.content.readany()
        assert not response.content.at_eof()
    goes_on.set()
    events = read_frames(raw + await response.read())
    check_stream(events)
    types = [event["type"] for event in events]
    assert 3 <= types.count("ping") <= (time.monotonic() - begun_s) / 0.05
    assert types.index("content_block_delta") < types.index("ping")
    assert types[0] == "message_start"
    assert types[-1] == "message_stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_generation(node: Node, stream: bool) -> None:
    """Before the first token of the whole form, in the middle of the streamed one."""
    script = [["text", "a"], ["repeat", 1000, ["text", "b "]], ["pause", 600]] if stream else [["pause", 600]]
    asking = asyncio.create_task(node.post(script, stream=stream, max_tokens=100_000))
    while not node.engine.unfinished_requests():
        await asyncio.sleep(0.01)
    if stream:
        response = await asking
        await response.content.readany()
        response.close()
    else:
        asking.cancel()
    await until_idle(node)


async def test_bodies_are_refused_by_type_size_and_sense(node: Node) -> None:
    assert await refusal(await node.send(b"{}", **{"Content-Type": "text/plain"})) == (
        415,
        "unsupported_media_type",
        None,
    )
    large = await node.send(b" " * 100_001)
    assert await refusal(large) == (413, "payload_too_large", None)
    assert (await large.json())["error"]["type"] == "request_too_large"
    assert "100001 bytes" in (await large.json())["error"]["message"]
    assert await refusal(await node.send(b"{")) == (400, "invalid_request", None)
    assert await refusal(await node.post("x", nonsense=1)) == (400, "unsupported_parameter", "nonsense")
    assert await refusal(await node.post("x", model="b3os/other")) == (404, "model_not_available", "model")
    assert large.headers["x-should-retry"] == "false"


async def test_a_body_of_unknown_size_is_read_no_further_than_the_limit(node: Node) -> None:
    async def endless() -> Any:
        for _ in range(1000):
            yield b" " * 10_000

    assert await refusal(await node.send(endless())) == (413, "payload_too_large", None)


async def test_a_request_without_a_token_or_with_a_used_one_is_not_read(node: Node) -> None:
    bare = await node.session.post(node.url + PATH, data=b"{}")
    assert await refusal(bare) == (401, "unauthorized", None)
    token = {"Authorization": f"Bearer {node_token()}"}
    assert (await node.send(b"{}", **token)).status == 400
    assert await refusal(await node.send(b"{}", **token)) == (409, "token_reused", None)


async def test_while_the_engine_starts_requests_are_told_when_to_come_back(start_node: Start) -> None:
    async def never() -> Engine:
        await asyncio.Event().wait()
        raise AssertionError

    node = await start_node(factory=never)
    response = await node.post(SAY)
    assert await refusal(response) == (503, "infer_backend_unavailable", None)
    assert int(response.headers["Retry-After"]) >= 1
    assert (await response.json())["error"]["type"] == "overloaded_error"
    assert "x-should-retry" not in response.headers


async def test_a_draining_node_takes_no_new_request_and_finishes_what_runs(node: Node) -> None:
    goes_on = node.hold_pauses()
    running = asyncio.create_task(node.post([["text", "a"], ["pause", HELD_S], ["text", "b"]], stream=True))
    while not node.engine.unfinished_requests():
        await asyncio.sleep(0.01)
    node.supervisor.drain()
    assert await refusal(await node.post(SAY)) == (503, "infer_backend_unavailable", None)
    goes_on.set()
    assert (await events_of(await running))[-1]["type"] == "message_stop"


async def test_concurrent_streams_interleave(node: Node) -> None:
    script = [["repeat", 20, ["text", "a"]]]
    answers = await asyncio.gather(*(node.post(script, stream=True) for _ in range(20)))
    for answer in answers:
        assert (await events_of(answer))[-1]["type"] == "message_stop"


async def test_the_list_tells_what_is_served(node: Node) -> None:
    path = "/v1/infer/models"
    headers = {"Authorization": f"Bearer {node_token(path, 'GET')}"}
    body = await (await node.session.get(node.url + path, headers=headers)).json()
    (entry,) = body["data"]
    assert body["object"] == "list"
    assert (entry["id"], entry["object"], entry["owned_by"]) == ("b3os/scripted", "model", "b3os")
    wrong = await node.session.put(node.url + PATH)
    assert await refusal(wrong) == (405, "method_not_allowed", None)
    assert "POST" in wrong.headers["Allow"]
