"""A node that is asked for another one's model: what the other gets, what comes back, and what if it fails."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from node.limits.names import leases_key, reservation_key
from shared.ids import new_request_id
from shared.node_token import mint
from shared.redis import connect_redis
from shared.request_log import RequestLog
from tests.heartbeats import heartbeat
from tests.integration.node.conftest import CALLER, KEY, PATH, Node
from tests.redis_server import free_port

BODY = json.dumps({"model": "b3os/b", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}).encode()
EVENT = b'event: message_start\ndata: {"type":"message_start"}\n\n'


async def say_hello(request: web.Request) -> web.StreamResponse:
    del request
    headers = {
        "RateLimit-Limit": "7",
        "x-b3os-ignored": "metadata",
        "x-secret": "1",
        "Server-Timing": "parse;dur=1.00",
    }
    return web.json_response({"b3os": {"node": "n2"}}, headers=headers)


@dataclass
class Peer:
    """Another node, as a test has it."""

    url: str = ""
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = say_hello
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        return await self.answer(request)


@pytest.fixture
async def peer(node: Node) -> AsyncIterator[Peer]:
    """Known to the node, and ready."""
    found = Peer()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", found.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = site.name
    node.peers.hear([heartbeat("n2", model="b3os/b", url=found.url)])
    yield found
    await runner.cleanup()


def token_for(*audience: str) -> tuple[str, str]:
    """A token, and the id of its request."""
    request_id, now_s = new_request_id(), int(time.time())
    claims = {"audience": list(audience), "request_id": request_id, "method": "POST", "path": PATH, "now_s": now_s}
    return f"Bearer {mint(KEY, CALLER, **claims)}", request_id  # type: ignore[arg-type]


async def ask(node: Node, body: bytes = BODY, **headers: str) -> aiohttp.ClientResponse:
    """With a token for both nodes, where the test has none of its own."""
    answer = await node.send(body, **{"Authorization": token_for("n1", "n2")[0], **headers})
    await answer.read()
    return answer


async def test_the_other_node_gets_the_same_bytes_and_token_and_its_answer_comes_back(node: Node, peer: Peer) -> None:
    token, request_id = token_for("n1", "n2")
    answer = await ask(node, BODY, **{"Authorization": token, "x-b3os-repeated": "2"})
    assert await answer.json() == {"b3os": {"node": "n2"}}
    assert (peer.bodies, peer.requests[0].path, peer.requests[0].method) == ([BODY], PATH, "POST")
    assert peer.requests[0].headers["Authorization"] == token
    assert peer.requests[0].headers["x-b3os-forwarded"] == "1"
    assert peer.requests[0].headers["x-b3os-repeated"] == "2"
    assert answer.headers["request-id"] == request_id
    assert answer.headers["RateLimit-Limit"] == "7"
    assert answer.headers["x-b3os-ignored"] == "metadata"
    assert "x-secret" not in answer.headers
    timing = answer.headers["Server-Timing"]
    assert [part.split(";")[0].strip() for part in timing.split(",")] == ["forward", "parse", "total"]


async def test_a_request_that_was_passed_on_is_passed_on_no_further(node: Node, peer: Peer) -> None:
    passed_on = {"Authorization": token_for("n1", "n2")[0], "x-b3os-forwarded": "1"}
    answer = await node.send(BODY, **passed_on)
    await answer.read()
    assert (answer.status, (await answer.json())["b3os"]["code"]) == (404, "model_not_available")
    assert peer.requests == []


@pytest.mark.parametrize("audience", [("n1",), ("n1", "n3")])
async def test_a_node_for_which_the_token_is_not_gets_nothing(
    node: Node, peer: Peer, audience: tuple[str, ...]
) -> None:
    answer = await ask(node, Authorization=token_for(*audience)[0])
    assert answer.status == 404
    assert peer.requests == []


async def test_what_is_no_json_or_too_large_is_refused_here(node: Node, peer: Peer) -> None:
    for body, kind, status in ((BODY, "text/plain", 415), (BODY + b" " * 100_000, "application/json", 413)):
        token = token_for("n1", "n2")[0]
        answer = await node.send(body, **{"Authorization": token, "Content-Type": kind})
        await answer.read()
        assert answer.status == status
    assert peer.requests == []


async def test_refusals_of_the_other_node_come_back_as_they_are(node: Node, peer: Peer) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        del request
        headers = {"Retry-After": "5", "x-b3os-not-started": "1"}
        return web.json_response({"type": "error"}, status=503, headers=headers)

    peer.answer = refuse
    answer = await ask(node)
    assert (answer.status, await answer.json()) == (503, {"type": "error"})
    assert (answer.headers["Retry-After"], answer.headers["x-b3os-not-started"]) == ("5", "1")


async def test_a_node_that_is_not_there_is_a_503_that_says_that_nothing_was_begun(node: Node) -> None:
    node.peers.hear([heartbeat("n2", model="b3os/b", url=f"http://127.0.0.1:{free_port()}")])
    answer = await ask(node)
    assert (answer.status, (await answer.json())["b3os"]["code"]) == (503, "infer_backend_unavailable")
    assert (answer.headers["Retry-After"], answer.headers["x-b3os-not-started"]) == ("1", "1")


async def drop(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_a_node_that_breaks_off_before_its_answer_is_a_503_that_says_nothing_of_the_kind(
    node: Node, peer: Peer
) -> None:
    peer.answer = drop
    answer = await ask(node)
    assert (answer.status, (await answer.json())["b3os"]["code"]) == (503, "infer_backend_unavailable")
    assert "x-b3os-not-started" not in answer.headers
    assert len(peer.requests) == 1


async def test_a_stream_comes_as_it_goes_and_breaks_where_it_breaks(node: Node, peer: Peer) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(EVENT)
        await request.content.read()
        seen.append(True)
        assert request.transport is not None
        request.transport.close()
        return response

    seen: list[bool] = []
    peer.answer = stream
    answer = await node.send(BODY, Authorization=token_for("n1", "n2")[0])
    assert (answer.status, answer.headers["X-Accel-Buffering"]) == (200, "no")
    assert await answer.content.readuntil(b"\n\n") == EVENT
    with pytest.raises(aiohttp.ClientPayloadError):
        await answer.content.read()
    answer.close()
    assert seen


async def test_nothing_is_reserved_or_logged_here_for_another_one_s_request(node: Node, peer: Peer) -> None:
    token, request_id = token_for("n1", "n2")
    assert (await ask(node, Authorization=token)).status == 200
    later, refused_id = token_for("n1", "n2")
    assert (await ask(node, BODY.replace(b"b3os/b", b"b3os/none"), Authorization=later)).status == 404
    redis = connect_redis(node.redis_url)
    log = RequestLog(redis)
    try:
        async with asyncio.timeout(60):
            while await log.fetch(CALLER.org, refused_id) is None:  # they are written in order
                await asyncio.sleep(0.01)
        for name in (leases_key(CALLER.org), reservation_key(CALLER.org, request_id)):
            assert not await redis.exists(name)
        assert await log.fetch(CALLER.org, request_id) is None
    finally:
        await redis.aclose()
