"""Bodies are bounded, and read only when they are welcome."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tests.integration.edge.parts import MESSAGES, Edge, FakeNode, make_key, running_edge

CAP = 33_554_432


async def talk(edge: Edge, *head: str) -> tuple[int, bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a head alone, and read the head and body of what comes back within 2 s."""
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    writer.write("\r\n".join((f"POST {MESSAGES} HTTP/1.1", "Host: edge", *head, "", "")).encode())
    async with asyncio.timeout(2):
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
    async with asyncio.timeout(2):
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


async def test_bodies_that_are_too_much_together_have_to_come_back(edge_redis_url: str, node: FakeNode) -> None:
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    async with (
        running_edge(edge_redis_url, nodes, max_bodies_bytes=3 << 20) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        headers = {"x-api-key": (await make_key(edge.store))[1].token}
        async with client.post(MESSAGES, data=io.BytesIO(b" " * (4 << 20)), headers=headers) as response:
            assert response.status == 503
            assert (await response.json())["error"]["code"] == "node_unavailable"
            assert response.headers["Retry-After"] == "1"
        for _ in range(3):  # and nothing of it stays held
            async with client.post(MESSAGES, data=io.BytesIO(b" " * (2 << 20)), headers=headers) as response:
                assert response.status == 200


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
