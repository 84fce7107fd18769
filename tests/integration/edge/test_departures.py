"""SIGTERM at an edge: whatever is under way has an end that a client can read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web

from tests.integration.edge.parts import MESSAGES, START, STOP, WELL_WITHIN_S, FakeNode, until
from tests.integration.edge.test_process import Surroundings, here, is_ready

__all__ = ["here"]


async def say_little(request: web.Request) -> web.StreamResponse:
    """A stream that begins and does not end."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(START)
    await asyncio.sleep(600)
    return response


async def say_nothing(request: web.Request) -> web.StreamResponse:
    """A prompt that is computed and computed."""
    await asyncio.sleep(600)
    raise AssertionError(request)


async def say_all(request: web.Request) -> web.StreamResponse:
    """A whole stream."""
    del request
    return web.Response(body=START + STOP, headers={"Content-Type": "text/event-stream"})


@dataclass(slots=True)
class Edge:
    """A process."""

    process: asyncio.subprocess.Process
    here: Surroundings
    client: aiohttp.ClientSession

    def post(self) -> asyncio.Task[aiohttp.ClientResponse]:
        """Ask."""
        url = f"http://127.0.0.1:{self.here.port}{MESSAGES}"
        return asyncio.ensure_future(self.client.post(url, json={}))

    def terminate(self) -> None:
        """The first signal."""
        self.process.send_signal(signal.SIGTERM)

    async def has_ended(self) -> int | None:
        """Its exit code, once it has one."""
        async with asyncio.timeout(30):
            await self.process.communicate()
        return self.process.returncode


@contextlib.asynccontextmanager
async def running_edge(here: Surroundings, node: FakeNode, **settings: str) -> AsyncIterator[Edge]:
    """In front of a node."""
    here.share_signing_key()
    here.environ |= {"B3OS_EDGE_NODES": json.dumps({"n1": f"http://127.0.0.1:{node.port}"}), **settings}
    wanted = ("--org", "departing", "--project", "main", "--name", "test", "--create-missing", "--json")
    key = json.loads((await here.run("admin", "keys", "create", *wanted))[1])["key"]
    process = await here.start("edge")
    try:
        await until(lambda: is_ready(here), WELL_WITHIN_S)
        async with aiohttp.ClientSession(headers={"x-api-key": key}) as client:
            yield Edge(process, here, client)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def is_closed_for(here: Surroundings) -> bool:
    """Whether nobody listens for clients any more."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", here.port)
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # just now
        return False
    writer.close()
    return False


async def test_a_stream_that_outlasts_the_drain_ends_with_an_error(here: Surroundings, node: FakeNode) -> None:
    node.answer = say_little
    async with running_edge(here, node, B3OS_EDGE_DRAIN_S="0.3") as edge:
        response = await edge.post()
        assert response.status == 200
        edge.terminate()
        body = await response.read()
        assert body.startswith(START)
        name, data = body.removeprefix(START).decode().strip().split("\n")
        assert name == "event: error"
        told = json.loads(data.removeprefix("data: "))
        assert (told["error"]["type"], told["b3os"]["code"]) == ("api_error", "node_unavailable")
        assert told["request_id"] == response.headers["request-id"]
        assert await edge.has_ended() == 0


async def test_a_request_without_a_head_by_then_is_a_plain_503(here: Surroundings, node: FakeNode) -> None:
    node.answer = say_nothing
    async with running_edge(here, node, B3OS_EDGE_DRAIN_S="0.3") as edge:
        asking = edge.post()
        async with asyncio.timeout(30):
            while not node.requests:
                await asyncio.sleep(0.01)
        edge.terminate()
        response = await asking
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert (await response.json())["error"]["code"] == "node_unavailable"
        assert await edge.has_ended() == 0


async def test_new_clients_are_turned_away_while_others_finish(here: Surroundings, node: FakeNode) -> None:
    node.answer = say_little
    async with running_edge(here, node, B3OS_EDGE_DRAIN_S="600") as edge:
        response = await edge.post()
        edge.terminate()
        await until(lambda: is_closed_for(here), WELL_WITHIN_S)
        assert await response.content.read(len(START)) == START
        response.close()


async def test_a_lame_duck_serves_and_is_not_ready_and_closes_each_connection(
    here: Surroundings, node: FakeNode
) -> None:
    node.answer = say_all
    async with running_edge(here, node, B3OS_EDGE_LAME_DUCK_S="600") as edge:
        before = await edge.post()
        assert await before.read() == START + STOP
        assert "Connection" not in before.headers
        edge.terminate()
        await until(lambda: is_lame(here), WELL_WITHIN_S)
        response = await edge.post()
        assert (response.status, await response.read()) == (200, START + STOP)
        assert response.headers["Connection"] == "close"


async def is_lame(here: Surroundings) -> bool:
    """Whether it says that it stops."""
    return not await is_ready(here)


HALF = b" " * 1_000_000
"""More than a server takes before somebody reads."""


async def begin_upload(edge: Edge, size_bytes: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which the half of a body was sent, and a server that has begun to read it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.here.port)
    headers = {"Host": "x", "x-api-key": edge.client.headers["x-api-key"], "Content-Length": str(size_bytes)}
    lines = [f"POST {MESSAGES} HTTP/1.1", "Expect: 100-continue", *(f"{name}: {headers[name]}" for name in headers)]
    writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(HALF)
    await writer.drain()
    return reader, writer


async def test_an_upload_under_way_goes_on_and_is_answered(here: Surroundings, node: FakeNode) -> None:
    async with running_edge(here, node, B3OS_EDGE_DRAIN_S="600") as edge:
        reader, writer = await begin_upload(edge, 2 * len(HALF))
        edge.terminate()
        await until(lambda: is_closed_for(here), WELL_WITHIN_S)
        writer.write(HALF + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # what follows is not answered
        async with asyncio.timeout(30):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1") == 1
        assert b"\r\nConnection: close\r\n" in answer
        assert node.bodies == [2 * HALF]
        writer.close()
        assert await edge.has_ended() == 0


async def test_an_upload_that_outlasts_the_drain_is_a_plain_503(here: Surroundings, node: FakeNode) -> None:
    async with running_edge(here, node, B3OS_EDGE_DRAIN_S="0.3") as edge:
        reader, writer = await begin_upload(edge, 2 * len(HALF))
        edge.terminate()
        async with asyncio.timeout(30):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in answer
        assert b'"code":"node_unavailable"' in answer
        assert node.bodies == []
        writer.close()
        assert await edge.has_ended() == 0


@pytest.mark.parametrize("answer", [say_little, say_nothing], ids=["a stream", "no head"])
async def test_a_client_that_leaves_meanwhile_is_no_trouble(
    here: Surroundings, node: FakeNode, answer: object
) -> None:
    node.answer = answer  # type: ignore[assignment]
    async with running_edge(here, node, B3OS_EDGE_DRAIN_S="600") as edge:
        asking = edge.post()
        async with asyncio.timeout(30):
            while not node.requests:
                await asyncio.sleep(0.01)
        edge.terminate()
        asking.cancel()
        (begun,) = await asyncio.gather(asking, return_exceptions=True)
        if isinstance(begun, aiohttp.ClientResponse):
            begun.close()
        assert await edge.has_ended() == 0
