"""A client that costs little: it shares two cores with what is measured.

Speaks as much HTTP/1.1 as the edge, LiteLLM and the stub node answer in. Decides what is noted of an answer. Must not
know what is asked, nor when.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from dataclasses import dataclass, field
from typing import Protocol, cast

import orjson

from tests.bench.edge.stub_node import MODEL

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LAST = b'event: message_stop\ndata: {"type":"message_stop","sha256":"'
_GIVEN = b'"text_delta","text":"'


def build_request(port: int, path: str, credential: str, text: str, *, stream: bool = False) -> bytes:
    """All bytes of a small request."""
    message = {"role": "user", "content": text}
    body = orjson.dumps({"model": MODEL, "max_tokens": 100, "stream": stream, "messages": [message]})
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {credential}\r\n"
        f"Content-Type: application/json\r\nanthropic-version: 2023-06-01\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the node, and the processes whose CPU it costs."""

    name: str
    port: int
    path: str
    credential: str
    pids: tuple[int, ...] = ()

    def request(self, text: str, *, stream: bool = False) -> bytes:
        """What is sent."""
        return build_request(self.port, self.path, self.credential, text, stream=stream)


class Sink(Protocol):
    """Takes a body as it comes."""

    def feed(self, data: bytes) -> None:
        """More of it."""


@dataclass(slots=True)
class Whole:
    """Keeps all."""

    body: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> None:
        """See `Sink`."""
        self.body += data


@dataclass(slots=True)
class Events:
    """Counts events, notes the age of each delta that tells when it was written, and checks the stub's SHA-256.

    Attributes:
        ages_ms: of deltas; empty for bursts, whose deltas tell nothing.
        is_same: whether every byte came as the stub wrote it; None until the end.
    """

    has_ages: bool
    count: int = 0
    ages_ms: list[float] = field(default_factory=list)
    is_same: bool | None = None
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    _held: bytes = b""

    def feed(self, data: bytes) -> None:
        """See `Sink`."""
        data = self._held + data
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            self._held = data
            return
        frames, self._held = data[:end], data[end:]
        self.count += frames.count(b"\n\n")
        if self.has_ages:
            now_ns = time.monotonic_ns()
            for part in frames.split(_GIVEN)[1:]:
                self.ages_ms.append((now_ns - int(part[: part.index(b'"')])) / 1e6)
        if (last := frames.find(_LAST)) < 0:
            self._hash.update(frames)
        else:
            self._hash.update(frames[:last])
            told = frames[last + len(_LAST) :].partition(b'"')[0].decode()
            self.is_same = self._hash.hexdigest() == told and frames[last:].count(b"\n\n") == 1


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[int] | None = None
        self._sink: Sink | None = None
        self._status = 0
        self._left_bytes: int | None = None

    @classmethod
    async def open(cls, port: int) -> Connection:
        """To this machine."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    @property
    def is_open(self) -> bool:
        """Whether the server hasn't closed it."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """At once."""
        assert self._transport is not None
        self._transport.abort()

    def ask(self, request: bytes, sink: Sink) -> asyncio.Future[int]:
        """Send; the status comes when the answer's last byte has."""
        assert self._transport is not None
        self._answer, self._sink, self._status = asyncio.get_running_loop().create_future(), sink, 0
        self._transport.write(request)
        return self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("cut within an answer"))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        if not self._status and not self._read_head():
            return
        if self._left_bytes is None:
            self._read_chunks()
        else:
            self._left_bytes -= len(self._received)
            self._take(len(self._received))
            if not self._left_bytes:
                self._end()

    def _read_head(self) -> bool:
        ends = self._received.find(b"\r\n\r\n")
        if ends < 0:
            return False
        self._status = int(self._received[9:12])
        length = _LENGTH.search(self._received, 0, ends + 2)
        self._left_bytes = None if length is None else int(length[1])
        del length, self._received[: ends + 4]
        return True

    def _read_chunks(self) -> None:
        """Whole chunks only (RFC 9112 §7.1); neither server writes extensions or trailers."""
        while (line := self._received.find(b"\r\n")) >= 0:
            size = int(self._received[:line], 16)
            if len(self._received) < line + size + 4:
                return
            del self._received[: line + 2]
            self._take(size)
            del self._received[:2]
            if not size:
                self._end()
                return

    def _take(self, size: int) -> None:
        assert self._sink is not None
        if size:
            self._sink.feed(bytes(self._received[:size]))
            del self._received[:size]

    def _end(self) -> None:
        assert self._answer is not None
        if not self._answer.done():
            self._answer.set_result(self._status)
