"""Bytes that are not HTTP: every one is answered in the shape of its port, and none of them reaches the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from shared.errors import BODY_TOO_LARGE, ApiError
from shared.http_server import MAX_HEAD_BYTES, MAX_PIPELINED, MAX_TARGET_BYTES
from shared.ids import REQUEST_ID
from shared.serve import Site, serving
from shared.web import build_app, json_response, read_body, render_openai
from tests.redis_server import free_port

SECRET = b"b3os_sk_secretsecret"
HOST = b"Host: x\r\n"
POST = b"POST /echo HTTP/1.1\r\n" + HOST


class Server:
    """What the tests talk to, and how many of its handlers run, and came to their end."""

    def __init__(self, port: int) -> None:
        self.port, self.lets_go = port, asyncio.Event()
        self.running = self.answered = 0

    async def handle(self, request: web.Request) -> web.Response:
        body = await read_body(request, 1_000_000, lambda _: ApiError(BODY_TOO_LARGE, "too large"))
        self.running += 1
        try:
            await asyncio.sleep({b"sleep": 600, b"wait": 0.3}.get(body, 0))
            if body == b"held.":
                await self.lets_go.wait()
        finally:
            self.running -= 1
        self.answered += 1
        return json_response({"size": len(body)})

    async def break_off(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        raise RuntimeError("a fault of ours")

    async def exchange(self, *parts: bytes, within_s: float = 60) -> tuple[int, dict[str, str], bytes]:
        """Send, wait a moment between the parts, and read the first answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.05)
            async with asyncio.timeout(within_s):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
                return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def running_server(drain_s: float) -> AsyncIterator[Server]:
    server = Server(free_port())
    app = build_app(lambda request: render_openai)
    app.router.add_post("/echo", server.handle)
    app.router.add_get("/broken", server.break_off)
    async with serving([Site(app, render_openai, "127.0.0.1", server.port)], drain_s=drain_s):
        yield server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running_server(drain_s=0) as server:
        yield server


UNREADABLE = {
    "no method": SECRET + b"\r\n\r\n",
    "bad version": b"GET / HTTP/9\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + SECRET + b"\r\n\r\n",
    "control character": POST + b"Authorization: Bearer " + SECRET + b"\x7f\r\n\r\n",
    "NUL": POST + b"Authorization: Bearer " + SECRET + b"\x00\r\n\r\n",
    "folded header": POST + b"A: b\r\n c\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "odd transfer encoding": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + SECRET,
    "long header": POST + b"Cookie: " + SECRET * 3000 + b"\r\n\r\n",
    "many headers": POST + b"".join(b"X-%d: 1\r\n" % number for number in range(500)) + b"\r\n",
    "bare line feeds": (POST + b"Authorization: Bearer " + SECRET + b"\r\n\r\n").replace(b"\r\n", b"\n"),
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_what_is_not_http_gets_a_body_of_the_contract(
    server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        status, headers, body = await server.exchange(UNREADABLE[name])
    error = json.loads(body)["error"]
    assert (status, error["code"], error["type"]) == (400, "invalid_request", "invalid_request_error")
    assert REQUEST_ID.fullmatch(headers["x-request-id"])
    assert headers["request-id"] == headers["x-request-id"]
    assert headers["server"] == "b3os"
    assert "server-timing" in headers
    logged = "".join(logging.Formatter().format(record) + str(vars(record)) for record in caplog.records)
    assert SECRET.decode() not in body.decode() + logged
    assert "127.0.0.1" not in logged


LONG_HEADS = {
    "a path of slashes": b"GET /" + b"/" * MAX_TARGET_BYTES + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a long query": b"GET /echo?" + b"&" * MAX_TARGET_BYTES + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "cookies": POST + (b"Cookie: " + b";" * 8000 + b"\r\n") * 5 + b"\r\n",
    "hops": POST + (b"X-Forwarded-For: " + b"," * 8000 + b"\r\n") * 64 + b"\r\n",
    "many names": POST + b"".join(b"X-%d-%b: 1\r\n" % (at, b"a" * 800) for at in range(50)) + b"\r\n",
    "behind an upgrade": POST
    + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    + b"GET /"
    + b"/" * MAX_TARGET_BYTES
    + b" HTTP/1.1\r\n"
    + HOST
    + b"\r\n",
}


@pytest.mark.parametrize("name", LONG_HEADS)
async def test_a_long_head_is_refused_before_anything_works_on_it(
    server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    with caplog.at_level(logging.DEBUG):
        writer.write(LONG_HEADS[name])
        async with asyncio.timeout(60):
            answers = await reader.read()
    writer.close()
    head, _, body = answers[answers.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"x-request-id: req_" in head.lower()
    error = json.loads(body)["error"]
    assert error["code"] == "invalid_request"
    assert error["message"].endswith("too long")
    assert "too long" in str([getattr(record, "facts", {}).get("cause") for record in caplog.records])
    assert "////" not in str([vars(record) for record in caplog.records])


async def test_a_body_behind_a_long_head_is_no_request(server: Server) -> None:
    head = POST + (b"Cookie: " + b";" * 8000 + b"\r\n") * 5 + b"Content-Length: %d\r\n\r\n"
    inner = b"GET /echo HTTP/1.1\r\n" + HOST + b"\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head % len(inner) + inner)
    async with asyncio.timeout(60):
        answers = await reader.read()
    writer.close()
    assert answers.count(b"HTTP/1.1 ") == 1


async def test_a_head_as_long_as_may_be_is_read(server: Server) -> None:
    target = b"/echo?" + b"a" * (MAX_TARGET_BYTES - len("/echo?"))
    room = MAX_HEAD_BYTES - len(b"Hostx" + b"Content-Length" + b"2") - 5 * len(b"X-Long")
    values = [b"a" * (room // 5)] * 4 + [b"a" * (room - room // 5 * 4)]
    head = b"POST " + target + b" HTTP/1.1\r\n" + HOST + b"".join(b"X-Long: %b\r\n" % value for value in values)
    assert (await server.exchange(head + b"Content-Length: 2\r\n\r\nab"))[0] == 200
    one_more = head.replace(b"X-Long: a", b"X-Long: aa", 1)
    assert (await server.exchange(one_more + b"Content-Length: 2\r\n\r\nab"))[0] == 400


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        (CHUNKED + b"5\r\nabcde\r\n", b"ZZZ\r\n"),
        (CHUNKED, b"ZZ\r\n"),
        (CHUNKED + b"ZZ\r\n",),
        (CHUNKED + b"2\r\nab\r\n0\r\nbad trailer\r\n\r\n",),
    ],
)
async def test_a_body_that_breaks_is_refused_at_once(server: Server, parts: tuple[bytes, ...]) -> None:
    status, _, body = await server.exchange(*parts)
    assert (status, json.loads(body)["error"]["code"]) == (400, "invalid_request")


async def test_a_body_that_breaks_behind_another_request_is_refused_at_once(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for part in (POST + b"Content-Length: 4\r\n\r\nwait" + CHUNKED, b"ZZ\r\n"):
        writer.write(part)
        await asyncio.sleep(0.02)
    async with asyncio.timeout(60):
        answers = await reader.read()
    writer.close()
    assert answers.count(b"HTTP/1.1 200") == answers.count(b"HTTP/1.1 400") == 1


async def test_many_bodies_that_break_at_once_are_all_refused(server: Server) -> None:
    async def broken() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(CHUNKED)
        await asyncio.sleep(0.001)
        writer.write(b"ZZ\r\n")
        status = int((await reader.readuntil(b"\r\n")).split()[1])
        writer.close()
        return status

    async with asyncio.timeout(60):
        assert set(await asyncio.gather(*(broken() for _ in range(200)))) == {400}


@pytest.mark.parametrize("path", [b"/echo", b"/nowhere"])
async def test_an_expectation_that_nobody_knows_is_ignored(server: Server, path: bytes) -> None:
    head = b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"Expect: " + SECRET + b"\r\nContent-Length: 2\r\n\r\nab"
    status, headers, body = await server.exchange(head)
    assert (status, headers["content-type"]) == (200 if path == b"/echo" else 404, "application/json")
    assert SECRET not in body


async def test_nobody_is_asked_to_continue_where_there_is_no_route(server: Server) -> None:
    head = b"POST /nowhere HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    assert (await server.exchange(head))[0] == 404


async def test_a_body_that_stops_coming_is_a_408(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.pace.GRACE_S", 0.2)
    status, headers, body = await server.exchange(POST + b"Content-Length: 9\r\n\r\nab")
    assert (status, json.loads(body)["error"]["code"]) == (408, "request_timeout")
    assert "x-should-retry" not in headers


@pytest.mark.parametrize("at_first", [1, 700_000])
async def test_a_body_that_drips_is_a_408_too(server: Server, monkeypatch: pytest.MonkeyPatch, at_first: int) -> None:
    monkeypatch.setattr("shared.pace.GRACE_S", 0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(POST + b"Content-Length: 900000\r\n\r\n" + b"a" * at_first)
    answer = asyncio.create_task(reader.readuntil(b"\r\n"))
    async with asyncio.timeout(60):
        while not answer.done():
            writer.write(b"a")
            await asyncio.sleep(0.01)
    writer.close()
    assert b" 408 " in answer.result()


async def test_a_body_that_takes_its_time_at_a_fair_speed_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.pace.GRACE_S", 5)
    monkeypatch.setattr("shared.pace.LEAST_BYTES_PER_S", 1)
    status, *_ = await server.exchange(POST + b"Content-Length: 12\r\n\r\n", *[b"a"] * 12)
    assert status == 200


async def test_no_body_takes_longer_than_all_have(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.pace.TOTAL_S", 0.3)
    monkeypatch.setattr("shared.pace.LEAST_BYTES_PER_S", 1)
    status, *_ = await server.exchange(POST + b"Content-Length: 99\r\n\r\n", *[b"a"] * 12)
    assert status == 408


async def test_a_fault_after_the_head_never_writes_a_second_one(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /broken HTTP/1.1\r\n" + HOST + b"\r\n")
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.endswith(b"begun\r\n")


SLEEP = POST + b"Content-Length: 5\r\n\r\nsleep"
UPGRADE = SLEEP.replace(HOST, HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n")


@pytest.mark.parametrize(
    "sent",
    [
        SLEEP,
        SLEEP * (MAX_PIPELINED * 5),
        SLEEP + POST + b"Content-Length: 5000000\r\n\r\n" + b" " * 5_000_000,
        UPGRADE + b"x" * 300_000,
    ],
    ids=["plain", "pipelined", "large body behind", "upgrade"],
)
async def test_a_client_that_leaves_is_noticed_whatever_else_it_sent(server: Server, sent: bytes) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    await asyncio.sleep(0.3)
    writer.transport.abort()
    async with asyncio.timeout(60):
        while server.running:
            await asyncio.sleep(0.01)


async def test_a_few_pipelined_requests_are_answered_in_order(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"".join(POST + b"Content-Length: %d\r\n\r\n" % size + b"a" * size for size in range(1, 7)))
    sizes = []
    async with asyncio.timeout(60):
        for _ in range(6):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            sizes.append(json.loads(await reader.readexactly(length))["size"])
    writer.close()
    assert sizes == [1, 2, 3, 4, 5, 6]


async def test_large_bodies_on_one_connection_are_read(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for _ in range(3):
        writer.write(POST + b"Content-Length: 900000\r\n\r\n" + b" " * 900_000)
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            assert json.loads(await reader.readexactly(length)) == {"size": 900_000}
    writer.close()


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"foo", b"gzip, gzip"])
async def test_a_compressed_body_is_refused_unread(server: Server, coding: bytes) -> None:
    status, _, body = await server.exchange(
        POST + b"Content-Encoding: " + coding + b"\r\nContent-Length: 3\r\n\r\nabc"
    )
    assert (status, json.loads(body)["error"]["code"]) == (415, "unsupported_media_type")


async def stop_listening(server: Server, stopping: asyncio.Task[None]) -> None:
    """Wait until nobody is let in any more."""
    while not stopping.done():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # just now
            continue
        writer.close()
        await asyncio.sleep(0.01)


async def test_a_body_under_way_when_the_server_stops_is_read_to_its_end() -> None:
    held = contextlib.AsyncExitStack()
    server = await held.enter_async_context(running_server(drain_s=600))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(POST + b"Content-Length: 900000\r\nExpect: 100-continue\r\n\r\n")
    async with asyncio.timeout(60):
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b" " * 400_000)
        stopping = asyncio.ensure_future(held.aclose())
        await stop_listening(server, stopping)
        writer.write(b" " * 500_000 + SLEEP)  # what follows is not begun
        answer = await reader.read()
        await stopping
    writer.close()
    assert answer.endswith(b'{"size":900000}')
    assert answer.count(b"HTTP/1.1") == 1


async def test_an_upload_behind_a_running_request_does_not_end_that_one_when_the_server_stops() -> None:
    held = contextlib.AsyncExitStack()
    server = await held.enter_async_context(running_server(drain_s=600))
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(60):
        writer.write(SLEEP.replace(b"sleep", b"held.") + POST + b"Content-Length: 900000\r\n\r\n" + b" " * 1000)
        while not server.running:
            await asyncio.sleep(0.01)
        stopping = asyncio.ensure_future(held.aclose())
        await stop_listening(server, stopping)
        for _ in range(30):  # more than it would keep
            writer.write(b" " * 20_000)
            await asyncio.sleep(0.01)
        server.lets_go.set()
        await stopping
    writer.close()
    assert server.answered == 1


async def test_an_honest_request_passes(server: Server) -> None:
    status, headers, body = await server.exchange(POST + b"Content-Length: 2\r\n\r\nab")
    assert (status, json.loads(body)) == (200, {"size": 2})
    assert headers["server-timing"].startswith("total;dur=")
