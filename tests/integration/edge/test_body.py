"""Bodies are bounded, and read only when they are welcome."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import itertools
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from edge.budget import SMALL_BYTES, largest_common_body_bytes
from tests.integration.edge.parts import MESSAGES, WELL_WITHIN_S, Edge, FakeNode, make_key, running_edge, until

CAP = 33_554_432
MIB = 1 << 20


async def talk(edge: Edge, *head: str) -> tuple[int, bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a head alone, and read the head and body of what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    writer.write("\r\n".join((f"POST {MESSAGES} HTTP/1.1", "Host: edge", *head, "", "")).encode())
    async with asyncio.timeout(WELL_WITHIN_S):
        answer = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
    return int(answer.split()[1]), body, reader, writer


async def test_an_announced_length_over_the_cap_is_refused_without_a_byte_read(
    edge: Edge, node: FakeNode, key: str
) -> None:
    status, body, _, writer = await talk(edge, f"x-api-key: {key}", f"Content-Length: {CAP + 1}")
    writer.close()
    error = json.loads(body)["error"]
    assert (status, error["code"], error["type"]) == (413, "payload_too_large", "invalid_request_error")
    assert node.requests == []


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue"])
async def test_100_continue_is_said_after_credentials_and_length(
    edge: Edge, node: FakeNode, key: str, expect: str
) -> None:
    head = (f"x-api-key: {key}", "Content-Length: 2", f"Expect: {expect}")
    status, _, reader, writer = await talk(edge, *head)
    assert status == 100
    writer.write(b"{}")
    async with asyncio.timeout(WELL_WITHIN_S):
        assert b" 200 " in await reader.readuntil(b"\r\n")
    assert node.bodies == [b"{}"]
    writer.close()


async def test_100_continue_is_not_said_to_anybody(edge: Edge, key: str) -> None:
    status, *_, writer = await talk(edge, "Content-Length: 2", "Expect: 100-continue")
    assert status == 401
    writer.close()
    head = (f"x-api-key: {key}", f"Content-Length: {CAP + 1}", "Expect: 100-continue")
    status, *_, writer = await talk(edge, *head)
    assert status == 413
    writer.close()


async def test_a_body_of_unknown_length_is_cut_at_the_cap(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * (1 << 20)

    async with client.post(MESSAGES, data=endless(), headers={"x-api-key": key}) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "payload_too_large"
    assert node.requests == []


@contextlib.asynccontextmanager
async def crowded_edge(redis_url: str, node: FakeNode) -> AsyncIterator[tuple[Edge, aiohttp.ClientSession]]:
    """An edge with room for four bodies of 4 MiB, one of them for each organization, and a client."""
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    limit_bytes = next(size for size in itertools.count(18 * MIB) if largest_common_body_bytes(size) == 16 * MIB)
    bounds = {"max_bodies_per_organization_bytes": 4 * MIB, "max_request_bytes": 4 * MIB}
    async with (
        running_edge(redis_url, nodes, max_bodies_bytes=limit_bytes, **bounds) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        yield edge, client


async def headers_of(edge: Edge, org: str) -> dict[str, str]:
    return {"x-api-key": (await make_key(edge.store, org=org))[1].token}


async def upload(
    client: aiohttp.ClientSession, headers: dict[str, str], size_bytes: int
) -> tuple[int, str | None, str | None]:
    """Status, code and `Retry-After` of a whole body."""
    async with client.post(MESSAGES, data=io.BytesIO(b" " * size_bytes), headers=headers) as response:
        code = None if response.ok else (await response.json())["error"]["code"]
        return response.status, code, response.headers.get("Retry-After")


async def passes(client: aiohttp.ClientSession, headers: dict[str, str]) -> bool:
    return (await upload(client, headers, 4 * MIB))[0] == 200


async def hold(edge: Edge, held: contextlib.AsyncExitStack, headers: dict[str, str], size_bytes: int) -> None:
    """Send a body but for its last byte, on a connection that `held` closes; return when the edge has it."""
    _, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    held.callback(writer.close)
    head = (f"POST {MESSAGES} HTTP/1.1", "Host: edge", *(f"{name}: {value}" for name, value in headers.items()))
    writer.write("\r\n".join((*head, f"Content-Length: {size_bytes}", "", "")).encode() + b" " * (size_bytes - 1))

    async def is_held() -> bool:
        async with aiohttp.ClientSession(edge.url) as client:
            return (await upload(client, headers, SMALL_BYTES + 1))[0] == 429

    await until(is_held, WELL_WITHIN_S)


async def test_bodies_that_are_too_much_together_have_to_come_back(edge_redis_url: str, node: FakeNode) -> None:
    async with crowded_edge(edge_redis_url, node) as (edge, client), contextlib.AsyncExitStack() as held:
        for org in "abcd":
            await hold(edge, held, await headers_of(edge, org), 4 * MIB)
        late = await headers_of(edge, "e")
        assert await upload(client, late, 4 * MIB) == (503, "node_unavailable", "1")
        await held.aclose()
        await until(lambda: passes(client, late), WELL_WITHIN_S)


async def test_one_organization_s_slow_uploads_leave_room_for_all_others(edge_redis_url: str, node: FakeNode) -> None:
    async with crowded_edge(edge_redis_url, node) as (edge, client), contextlib.AsyncExitStack() as held:
        greedy, honest = await headers_of(edge, "greedy"), await headers_of(edge, "honest")
        await hold(edge, held, greedy, 4 * MIB)
        for _ in range(3):
            assert await upload(client, greedy, 4 * MIB) == (429, "rate_limited", "1")
            assert (await upload(client, honest, 4 * MIB))[0] == 200
        await held.aclose()
        await until(lambda: passes(client, greedy), WELL_WITHIN_S)


async def test_slow_uploads_of_many_leave_room_for_small_bodies(edge_redis_url: str, node: FakeNode) -> None:
    async with crowded_edge(edge_redis_url, node) as (edge, client), contextlib.AsyncExitStack() as held:
        for org in "abcd":
            await hold(edge, held, await headers_of(edge, org), 4 * MIB)
        for org in ("a", "e"):
            assert (await upload(client, await headers_of(edge, org), 65_536))[0] == 200


async def test_a_zip_bomb_is_not_unpacked(client: aiohttp.ClientSession, node: FakeNode, key: str) -> None:
    bomb = gzip.compress(b"x" * (CAP + 1))
    headers = {"x-api-key": key, "Content-Encoding": "gzip"}
    async with client.post(MESSAGES, data=bomb, headers=headers) as response:
        assert response.status == 415
    assert node.requests == []


async def test_twelve_mebibytes_are_for_the_node_to_refuse(
    client: aiohttp.ClientSession, node: FakeNode, key: str
) -> None:
    refusal = {"type": "error", "error": {"type": "request_too_large", "message": "x"}}

    async def refuse_unread(request: web.Request) -> web.StreamResponse:
        assert request.content_length == 12 << 20
        return web.json_response(refusal, status=413)

    node.answer, node.reads_bodies = refuse_unread, False
    async with client.post(MESSAGES, data=Pieces(12), headers={"x-api-key": key}) as response:
        assert response.status == 413
        assert await response.json() == refusal


class Pieces(aiohttp.payload.Payload):
    """Mebibytes of a known length, written one by one."""

    def __init__(self, mebibytes: int) -> None:
        super().__init__(None, content_type="application/json")
        self._mebibytes = mebibytes
        self._size = mebibytes << 20

    async def write(self, writer: aiohttp.abc.AbstractStreamWriter) -> None:
        for _ in range(self._mebibytes):
            await writer.write(b"x" * (1 << 20))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise NotImplementedError


async def test_a_client_that_leaves_within_its_body_costs_nothing(edge: Edge, node: FakeNode, key: str) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    writer.write(f"POST {MESSAGES} HTTP/1.1\r\nHost: a\r\nx-api-key: {key}\r\nContent-Length: 9\r\n\r\nabc".encode())
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.close()
    await asyncio.sleep(0.1)
    assert node.requests == []
