"""What passes the edge and what does not, and how answers end."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from tests.integration.edge.parts import (
    DELTA,
    MESSAGES,
    MODELS,
    START,
    STOP,
    WELL_WITHIN_S,
    Answer,
    Edge,
    FakeNode,
    make_key,
    running_edge,
    running_node,
)
from tests.redis_server import free_port

REFUSAL = {"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}


async def open_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Server-Timing": "parse;dur=1.00, ttft;dur=5.00"}
    )
    await response.prepare(request)
    return response


def streaming(*pieces: bytes, pause_s: float = 0, cut: bool = False) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await open_stream(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(pause_s)
        if cut:
            await asyncio.sleep(0.05)
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


async def streaming_for_ever(request: web.Request) -> web.StreamResponse:
    response = await open_stream(request)
    while True:
        await response.write(START)
        await asyncio.sleep(0.02)


async def silent(request: web.Request) -> web.StreamResponse:
    del request
    await asyncio.sleep(600)
    raise AssertionError


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_body_and_allowed_headers_reach_the_node_unchanged(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    body = b'{"a": 1 , "b":"\xc3\xa9"}'
    headers = {
        **bearer(key),
        "x-api-key": key,
        "Cookie": "a=b",
        "Content-Type": "application/json; charset=utf-8",
        "anthropic-version": "2023-06-01",
        "x-b3os-org": "another",
        "X-Forwarded-For": "1.2.3.4",
        "x-request-id": "req_mine",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    async with client.post(MESSAGES, data=body, headers=headers) as response:
        assert response.status == 200
    [got] = node.requests
    assert node.bodies == [body]
    assert {name.lower() for name in got.headers} == {
        "accept", "accept-encoding", "anthropic-version", "authorization", "content-length", "content-type", "host",
    }  # fmt: skip
    assert key not in got.headers["Authorization"]
    assert got.headers["Content-Type"] == headers["Content-Type"]
    assert got.headers["Accept-Encoding"] == "identity"


async def test_allowed_headers_of_the_node_reach_the_client(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        del request
        headers = {
            "Retry-After": "7",
            "RateLimit-Limit": "5",
            "x-should-retry": "true",
            "x-b3os-ignored": "metadata",
            "Set-Cookie": "a=b",
            "Location": "http://elsewhere",
            "x-secret": "1",
            "request-id": "another",
        }
        return web.json_response(REFUSAL, status=429, headers=headers)

    node.answer = answer
    async with client.post(MESSAGES, json={}, headers=bearer(key)) as response:
        assert response.status == 429
        assert await response.json() == REFUSAL
        assert {name.lower() for name in response.headers} == {
            "content-type", "retry-after", "ratelimit-limit", "x-should-retry", "x-b3os-ignored", "x-request-id",
            "request-id", "server-timing", "content-length", "date", "server",
        }  # fmt: skip
        assert response.headers["request-id"] == response.headers["x-request-id"] != "another"


async def test_the_edges_phases_come_first_and_total_is_its_own(client: aiohttp.ClientSession, key: str) -> None:
    async with client.post(MESSAGES, json={}, headers=bearer(key)) as response:
        phases = [part.split(";")[0].strip() for part in response.headers["Server-Timing"].split(",")]
    assert phases == ["edge_auth", "edge_upstream", "parse", "total"]


async def test_models_are_the_nodes(client: aiohttp.ClientSession, node: FakeNode, key: str) -> None:
    async with client.get(MODELS, headers=bearer(key)) as response:
        assert response.status == 200
    assert (node.requests[0].method, node.bodies) == ("GET", [b""])


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_stream_passes_unchanged_in_any_pieces(
    client: aiohttp.ClientSession, node: FakeNode, key: str, size: int
) -> None:
    stream = START + DELTA * 3 + STOP
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    node.answer = streaming(*pieces)
    async with client.post(MESSAGES, json={}, headers=bearer(key)) as response:
        assert await response.read() == stream
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-cache, no-transform"
        assert response.headers["X-Accel-Buffering"] == "no"
        phases = [part.split(";")[0].strip() for part in response.headers["Server-Timing"].split(",")]
        assert phases == ["edge_auth", "edge_upstream", "parse", "ttft"]


async def test_events_pass_as_they_come(client: aiohttp.ClientSession, node: FakeNode, key: str) -> None:
    node.answer = streaming_for_ever
    async with client.post(MESSAGES, json={}, headers=bearer(key)) as response:
        async with asyncio.timeout(WELL_WITHIN_S):
            assert await response.content.readuntil(b"\n\n") == START


@pytest.mark.parametrize("cut", [True, False])
async def test_a_node_lost_within_a_frame_ends_in_a_clean_error_event(
    client: aiohttp.ClientSession, node: FakeNode, key: str, cut: bool
) -> None:
    node.answer = streaming(START, DELTA, DELTA[:20], cut=cut)
    async with client.post(MESSAGES, json={}, headers=bearer(key)) as response:
        received = await response.read()
        request_id = response.headers["request-id"]
    assert received.startswith(START + DELTA + b"event: error\ndata: ")
    body = json.loads(received.removeprefix(START + DELTA + b"event: error\ndata: "))
    assert (body["type"], body["error"]["type"], body["request_id"]) == ("error", "api_error", request_id)
    assert body["b3os"] == {"code": "node_unavailable"}


async def test_a_node_lost_after_the_terminal_event_was_not_lost(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    node.answer = streaming(START, STOP, cut=True)
    async with client.post(MESSAGES, json={}, headers=bearer(key)) as response:
        assert await response.read() == START + STOP


async def assert_node_unavailable(client: aiohttp.ClientSession, key: str) -> None:
    async with client.post(MESSAGES, json={}, headers=bearer(key)) as response:
        assert response.status == 503
        body = await response.json()
        assert (body["error"]["type"], body["error"]["code"]) == ("server_error", "node_unavailable")
        assert response.headers["Retry-After"] == "1"


async def test_a_node_lost_within_a_whole_body_is_a_503(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"type":')
        assert request.transport is not None
        request.transport.close()
        return response

    node.answer = answer
    await assert_node_unavailable(client, key)


@pytest.mark.parametrize("status", [401, 409])
async def test_a_rejected_token_is_never_the_clients_fault(
    client: aiohttp.ClientSession, node: FakeNode, key: str, status: int
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        del request
        return web.json_response(REFUSAL, status=status)

    node.answer = answer
    await assert_node_unavailable(client, key)


async def test_a_client_that_leaves_before_the_head_ends_the_nodes_work(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    node.answer = silent
    asking = asyncio.create_task(client.post(MESSAGES, json={}, headers=bearer(key)))
    async with asyncio.timeout(WELL_WITHIN_S):
        while not node.bodies:
            await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(WELL_WITHIN_S):
        await node.abandoned.wait()


async def test_a_client_that_leaves_within_a_stream_ends_the_nodes_work(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    node.answer = streaming_for_ever
    response = await client.post(MESSAGES, json={}, headers=bearer(key))
    await response.content.readany()
    response.close()
    async with asyncio.timeout(WELL_WITHIN_S):
        await node.abandoned.wait()


async def test_a_client_that_takes_nothing_is_cut(edge_redis_url: str, node: FakeNode) -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        response = await open_stream(request)
        while True:
            await response.write(b"event: ping\ndata: " + b"x" * 65536 + b"\n\n")

    node.answer = flood
    nodes = {"n1": f"http://127.0.0.1:{node.port}"}
    async with running_edge(edge_redis_url, nodes, stalled_client_s=0.3) as edge:
        _, credential = await make_key(edge.store)
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(f"POST {MESSAGES} HTTP/1.1\r\nHost: a\r\nx-api-key: {credential.token}\r\n\r\n".encode())
        async with asyncio.timeout(WELL_WITHIN_S):
            await node.abandoned.wait()
        del reader
        writer.close()


async def test_a_node_that_falls_silent_is_lost(edge_redis_url: str, node: FakeNode) -> None:
    node.answer = streaming(START, DELTA, pause_s=600)
    nodes = {"n1": f"http://127.0.0.1:{node.port}"}
    async with running_edge(edge_redis_url, nodes, chunk_s=2) as edge, aiohttp.ClientSession(edge.url) as client:
        _, credential = await make_key(edge.store)
        async with client.post(MESSAGES, json={}, headers=bearer(credential.token)) as response:
            assert (await response.read()).startswith(START + b"event: error\n")
        async with asyncio.timeout(WELL_WITHIN_S):
            await node.abandoned.wait()


async def test_no_reachable_node_is_a_503(edge_redis_url: str) -> None:
    nodes = {"n1": f"http://127.0.0.1:{free_port()}"}
    async with running_edge(edge_redis_url, nodes) as edge, aiohttp.ClientSession(edge.url) as client:
        _, credential = await make_key(edge.store)
        await assert_node_unavailable(client, credential.token)


async def test_a_node_that_refuses_connections_is_replaced_by_another(edge_redis_url: str) -> None:
    async with running_node("n2") as second:
        nodes = {"n1": f"http://127.0.0.1:{free_port()}", "n2": f"http://127.0.0.1:{second.port}"}
        async with running_edge(edge_redis_url, nodes) as edge, aiohttp.ClientSession(edge.url) as client:
            _, credential = await make_key(edge.store)
            for _ in range(3):
                async with client.post(MESSAGES, json={}, headers=bearer(credential.token)) as response:
                    assert response.status == 200
    assert len(second.requests) == 3


async def drop(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(1)
    raise AssertionError


async def test_a_pooled_connection_that_died_is_replaced_once_with_the_same_token(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    await (await client.post(MESSAGES, json={}, headers=bearer(key))).read()

    async def drop_once(request: web.Request) -> web.StreamResponse:
        if len(node.requests) == 2:
            return await drop(request)
        return web.json_response({})

    node.answer = drop_once
    async with client.post(MESSAGES, json={"n": 1}, headers=bearer(key)) as response:
        assert response.status == 200
    _, second, third = node.requests
    assert second.headers["Authorization"] == third.headers["Authorization"]
    assert node.bodies[1] == node.bodies[2] == b'{"n": 1}'


async def test_a_fresh_connection_that_died_is_not_tried_again(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    node.answer = drop
    await assert_node_unavailable(client, key)
    assert len(node.requests) == 1


async def test_other_routes_answer_problems_and_inference_routes_the_openai_shape(
    client: aiohttp.ClientSession,
) -> None:
    async with client.get("/elsewhere") as response:
        assert response.content_type == "application/problem+json"
        assert (await response.json())["code"] == "not_found"
    async with client.put(MESSAGES) as response:
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
        assert (await response.json())["error"]["code"] == "method_not_allowed"


async def test_the_operator_port_tells_readiness(edge: Edge) -> None:
    async with aiohttp.ClientSession(edge.operator_url) as operator:
        async with operator.get("/healthz") as response:
            assert response.status == 200
        async with operator.get("/readyz") as response:
            assert response.status == 200
            facts = await response.json()
    assert (facts["redis"], facts["invalidations"], list(facts["nodes"])) == (True, True, ["n1"])


async def test_an_edge_that_knows_no_node_is_not_ready(edge_redis_url: str) -> None:
    async with (
        running_edge(edge_redis_url, {}) as edge,
        aiohttp.ClientSession(edge.operator_url) as operator,
        operator.get("/readyz") as response,
    ):
        assert response.status == 503


async def test_many_streams_at_once_all_arrive_whole(client: aiohttp.ClientSession, node: FakeNode, key: str) -> None:
    node.answer = streaming(START, STOP)
    answers = await asyncio.gather(*(client.post(MESSAGES, json={}, headers=bearer(key)) for _ in range(20)))
    assert {await answer.read() for answer in answers} == {START + STOP}
