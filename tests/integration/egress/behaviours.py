"""What the servers of the lab do, by the path that they are asked for. All of it is hostile but the first few."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
from collections.abc import Awaitable, Callable
from urllib.parse import unquote_to_bytes

from PIL import Image

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
LARGEST = 10_485_760
"""`max_image_bytes`, as it is by default."""
STEP_S = 1.5
TOTAL_S = 3.0
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange", "black", "white")
_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
Behaviour = Callable[[asyncio.StreamWriter, str], Awaitable[None]]


def with_length(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """An answer of known length."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def padded(size: int) -> bytes:
    """A PNG's beginning and zeros."""
    return PNG.ljust(size, b"\0")


def picture_of(colour: str) -> bytes:
    """A PNG of one colour, as the tiny model was shown them."""
    buffer = io.BytesIO()
    Image.new("RGB", (80, 60), colour).save(buffer, "PNG")
    return buffer.getvalue()


class Gone(Exception):
    """The client has left."""


async def put(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write, unless nobody is there: `drain` alone doesn't notice an aborted TLS connection."""
    if writer.transport.is_closing():
        raise Gone
    writer.write(data)
    await writer.drain()
    await asyncio.sleep(0)


async def put_forever(writer: asyncio.StreamWriter, data: bytes, *, every_s: float = 0) -> None:
    """Write until the client leaves."""
    while True:
        await put(writer, data)
        if every_s:
            await asyncio.sleep(every_s)


def plain(answer: bytes) -> Behaviour:
    """Write all at once and close."""

    async def behave(writer: asyncio.StreamWriter, query: str) -> None:
        for start in range(0, len(answer), 65_536):
            await put(writer, answer[start : start + 65_536])

    return behave


async def show_colour(writer: asyncio.StreamWriter, query: str) -> None:
    """A picture of the colour that the query names."""
    await put(writer, with_length(picture_of(query)) if query in COLOURS else with_length(b"", status="404 X"))


def redirecting(status: str = "302 Found", *headers: str, body: bytes = b"") -> Behaviour:
    """Redirect to what the query spells."""

    async def behave(writer: asyncio.StreamWriter, query: str) -> None:
        location = f"Location: {unquote_to_bytes(query).decode('latin-1')}"
        await put(writer, with_length(body, location, *headers, status=status))

    return behave


def forever(head: bytes, piece: bytes, *, every_s: float = 0) -> Behaviour:
    """Write a head, then a piece again and again."""

    async def behave(writer: asyncio.StreamWriter, query: str) -> None:
        await put(writer, head)
        await put_forever(writer, piece, every_s=every_s)

    return behave


async def silent(writer: asyncio.StreamWriter, query: str) -> None:
    """Say nothing."""
    while not writer.transport.is_closing():
        await asyncio.sleep(0.05)


async def stall(writer: asyncio.StreamWriter, query: str) -> None:
    """Half an image, then nothing."""
    await put(writer, with_length(PNG)[:-20])
    await silent(writer, query)


async def reset(writer: asyncio.StreamWriter, query: str) -> None:
    """Break off in the middle."""
    await put(writer, with_length(padded(100_000))[:50_000])
    writer.transport.abort()


def cut_off(answer: bytes) -> Behaviour:
    """The whole of it, and no farewell of TLS."""

    async def behave(writer: asyncio.StreamWriter, query: str) -> None:
        await put(writer, answer)
        writer.transport.abort()

    return behave


async def second_later(writer: asyncio.StreamWriter, query: str) -> None:
    """An image, and later, unless the client has left, the answer to a question that nobody asked."""
    await put(writer, with_length(PNG, "Connection: keep-alive"))
    for _ in range(60):
        if writer.transport.is_closing():
            break
        await asyncio.sleep(0.05)  # 3 s in all: a client that stands still must not find both at once
    await put(writer, with_length(b"poison"))


def drip(data: bytes, every_s: float) -> Behaviour:
    """A byte at a time."""

    async def behave(writer: asyncio.StreamWriter, query: str) -> None:
        for byte in data:
            await put(writer, bytes([byte]))
            await asyncio.sleep(every_s)

    return behave


_BOMB = gzip.compress(bytes(200_000_000), 1)
BEHAVIOURS: dict[str, Behaviour] = {
    "/ok.png": plain(with_length(PNG, "Content-Type: image/png")),
    "/colour": show_colour,
    "/to": redirecting(),
    **{f"/to-{status}": redirecting(f"{status} Found") for status in (300, 301, 303, 304, 305, 306, 307, 308)},
    "/to-endless": redirecting("302 Found", body=bytes(5_000_000)),
    "/to-cookie": redirecting("302 Found", "Set-Cookie: a=b; Domain=lab.example; Path=/"),
    "/noloc": plain(with_length(b"", status="302 Found")),
    "/emptyloc": plain(with_length(b"", "Location:", status="302 Found")),
    "/twoloc": plain(with_length(b"", "Location: /ok.png", "Location: /ok.png", status="302 Found")),
    "/to-long": plain(with_length(b"", f"Location: /{'a' * 2048}", status="302 Found")),
    "/loop": plain(with_length(b"", "Location: /loop", status="302 Found")),
    "/fragment-loop": plain(with_length(b"", "Location: #x", status="302 Found")),
    **{
        f"/hops/{count}": plain(
            with_length(b"", f"Location: {f'/hops/{count - 1}' if count > 1 else '/ok.png'}", status="302 Found")
        )
        for count in range(1, 6)
    },
    # Lengths.
    "/big-cl": plain(_OK + f"Content-Length: {LARGEST + 1}\r\n\r\n".encode() + PNG),
    "/two-cl": plain(_OK + f"Content-Length: {len(PNG)}\r\nContent-Length: 3\r\n\r\n".encode() + PNG),
    "/cl-list": plain(_OK + f"Content-Length: {len(PNG)}, 3\r\n\r\n".encode() + PNG),
    "/cl-te": plain(_OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(PNG) + b"0\r\n\r\n"),
    "/te-cl": plain(_OK + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + chunk(PNG) + b"0\r\n\r\n"),
    "/te-gzip": plain(_OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk(PNG) + b"0\r\n\r\n"),
    "/te-twice": plain(
        _OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(PNG) + b"0\r\n\r\n"
    ),
    **{
        f"/cl-{name}": plain(_OK + f"Content-Length: {value}\r\n\r\n".encode() + PNG)
        for name, value in {
            "negative": "-1",
            "plus": f"+{len(PNG)}",
            "hex": "0x46",
            "huge": "9" * 40,
            "empty": "",
            "under": f"1_{len(PNG)}",
        }.items()
    },
    "/cl-short": plain(_OK + f"Content-Length: {len(PNG) + 5}\r\n\r\n".encode() + PNG),
    "/long": plain(with_length(PNG) + b"and more"),
    "/two-answers": plain(with_length(PNG, "Connection: keep-alive") + with_length(b"poison")),
    "/second-later": second_later,
    "/endless": forever(_CHUNKED + chunk(PNG), chunk(bytes(65_536))),
    "/endless-eof": forever(_OK + b"\r\n" + PNG, bytes(65_536)),
    "/eof-ok": plain(_OK + b"\r\n" + PNG),
    "/eof-cut": cut_off(_OK + b"\r\n" + PNG),
    "/length-cut": cut_off(with_length(PNG)),
    "/exact": plain(with_length(padded(LARGEST))),
    "/exact-chunked": plain(_CHUNKED + chunk(padded(LARGEST)) + b"0\r\n\r\n"),
    "/over": plain(_CHUNKED + chunk(padded(LARGEST)) + chunk(b"x") + b"0\r\n\r\n"),
    "/empty": plain(with_length(b"")),
    # Time.
    "/slow-head": drip(_OK * 100, 0.2),
    "/slow-body": drip(with_length(padded(100)), 0.2),
    "/silent": silent,
    "/stall": stall,
    "/rst": reset,
    # Heads.
    "/many-headers": plain(_OK + b"".join(b"X-%d: y\r\n" % number for number in range(5000)) + b"\r\n" + PNG),
    "/huge-header": plain(_OK + b"X: " + b"y" * 2_000_000 + b"\r\n\r\n" + PNG),
    "/endless-headers": forever(_OK, b"X-A: " + b"y" * 1000 + b"\r\n"),
    "/endless-header": forever(_OK + b"X-A: ", b"y" * 4096),
    "/endless-folds": forever(_OK + b"X-A: a\r\n", b" y\r\n" * 500),
    "/slow-headers": forever(_OK, b"A: b\r\n", every_s=0.2),
    "/empty-lines": forever(b"", b"\r\n" * 2000),
    "/1xx-flood": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
    "/1xx-slow": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n", every_s=0.5),
    "/1xx-few": plain(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 3 + with_length(PNG)),
    "/many-1xx": plain(b"HTTP/1.1 102 Processing\r\n\r\n" * 9 + with_length(PNG)),
    "/http09": plain(PNG),
    "/http10": plain(b"HTTP/1.0 200 OK\r\n\r\n" + PNG),
    "/http10-te": plain(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(PNG) + b"0\r\n\r\n"),
    "/http20": plain(b"HTTP/2.0 200 OK\r\n\r\n" + PNG),
    "/http3digits": plain(b"HTTP/1.1 20 OK\r\n\r\n" + PNG),
    "/status-999": plain(b"HTTP/1.1 999 What\r\n\r\n" + PNG),
    "/nul-header": plain(_OK + b"X: a\0b\r\nContent-Length: 70\r\n\r\n" + PNG),
    "/space-colon": plain(_OK + b"Content-Length : 70\r\n\r\n" + PNG),
    "/no-colon": plain(_OK + b"nonsense\r\n\r\n" + PNG),
    "/cr-only": plain(_OK.replace(b"\n", b"") + b"\r\r" + PNG),
    "/junk": plain(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "/smtp": plain(b"220 mail ESMTP\r\n250 ok\r\n"),
    "/http2": plain(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)),
    # Chunks.
    "/chunk-ext": forever(_CHUNKED + b"1;", b"x" * 4096),
    "/chunk-exts": forever(_CHUNKED + chunk(PNG), b"1;" + b"x" * 20_000 + b"\r\ny\r\n"),
    "/tiny-chunks": forever(_CHUNKED + chunk(PNG), chunk(b"x") * 20_000),
    "/bad-chunk": plain(_CHUNKED + b"xyz\r\n" + PNG),
    "/negative-chunk": plain(_CHUNKED + b"-5\r\n" + PNG),
    "/huge-chunk": plain(_CHUNKED + b"f" * 30 + b"\r\n" + PNG),
    "/chunk-no-end": plain(_CHUNKED + chunk(PNG)),
    "/chunk-long": plain(_CHUNKED + b"5\r\n" + PNG + b"\r\n0\r\n\r\n"),
    "/trailer-bomb": forever(_CHUNKED + chunk(PNG) + b"0\r\n", b"X: y\r\n" * 500),
    "/trailers": plain(_CHUNKED + chunk(PNG) + b"0\r\nX: y\r\n\r\n"),
    # Bodies.
    "/gzip-bomb": plain(with_length(_BOMB, "Content-Encoding: gzip")),
    "/gzip-unsaid": plain(with_length(_BOMB)),
    "/gzip": plain(with_length(gzip.compress(PNG), "Content-Encoding: gzip")),
    "/deflate": plain(with_length(PNG, "Content-Encoding: deflate")),
    "/br": plain(with_length(PNG, "Content-Encoding: br")),
    "/twice-encoded": plain(with_length(PNG, "Content-Encoding: identity", "Content-Encoding: gzip")),
    "/identity": plain(with_length(PNG, "Content-Encoding: Identity")),
    "/svg": plain(with_length(b'<svg xmlns="http://www.w3.org/2000/svg"/>', "Content-Type: image/png")),
    "/html": plain(with_length(b"<!doctype html><title>metadata</title>", "Content-Type: image/png")),
    "/short-text": plain(with_length(b"secret")),
    "/text-png": plain(with_length(PNG, "Content-Type: text/html")),
    "/endless-text": forever(_CHUNKED, chunk(b"secret " * 5000)),
    # Statuses.
    "/101": plain(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + PNG),
    **{f"/{status}": plain(with_length(PNG, status=f"{status} X")) for status in (201, 203, 206, 400, 401, 404, 407)},
    **{f"/{status}": plain(with_length(PNG, status=f"{status} X")) for status in (410, 418, 429, 500, 503)},
    "/204": plain(b"HTTP/1.1 204 X\r\n\r\n"),
    "/refresh": plain(with_length(b"", "Refresh: 0; url=https://127.0.0.1/", status="404 X")),
}
NOT_FOUND = plain(with_length(b"", status="404 Not Found"))
