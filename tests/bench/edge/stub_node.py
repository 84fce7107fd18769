"""A node that costs next to nothing, so that what stands before it is measured; `processes` starts it.

Speaks as much HTTP/1.1 as our clients of it write. Decides what it answers by a phrase in the request's body, which
passes a proxy that writes the body anew. Believes every token: nothing is checked here.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
import time
from typing import cast

import orjson
import uvloop

MODEL = "b3os/bench"
_PLAY = re.compile(rb"play (\d+) events, one every (\d+) ms")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_AT_ONCE = 64
"""Events of a burst that are handed to the socket in one piece."""


def phrase(events: int, every_ms: int) -> str:
    """What a message has to say for a stream of so many deltas; 0 ms is as fast as they are taken."""
    return f"play {events} events, one every {every_ms} ms"


def _frame(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: ".encode() + orjson.dumps({"type": kind, **fields}) + b"\n\n"


_MESSAGE: dict[str, object] = {
    "id": "msg_0123456789abcdef0123456789abcdef",
    "type": "message",
    "role": "assistant",
    "model": MODEL,
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 12, "output_tokens": 1},
}
_WHOLE = orjson.dumps(_MESSAGE)
_WHOLE_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer-Timing: model;dur=0.01, total;dur=0.02\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_WHOLE), _WHOLE)
)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_BEGIN = _frame("message_start", message={**_MESSAGE, "content": [], "stop_reason": None}) + _frame(
    "content_block_start", index=0, content_block={"type": "text", "text": ""}
)
_END = _frame("content_block_stop", index=0) + _frame(
    "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 1}
)


def _delta(text: str) -> bytes:
    return _frame("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def _chunk(frames: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(frames), frames)


class _Stream:
    """One answer in events. The last one tells the SHA-256 of all bytes before it, each delta when it was written."""

    def __init__(self, transport: asyncio.Transport, events: int, every_ms: int) -> None:
        self._transport, self._left, self._every_s = transport, events, every_ms / 1000
        self._hash = hashlib.sha256()
        self._loop = asyncio.get_running_loop()
        self._due_s = self._loop.time()
        self._burst = [_delta(f"{number:016}") for number in range(_AT_ONCE)]
        self._is_paused = False
        self._transport.write(_STREAM_HEAD)
        self._write([_BEGIN])
        self.go_on()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        if not self._every_s:
            self.go_on()

    def go_on(self) -> None:
        """The next event, or as many of a burst as are taken."""
        if self._transport.is_closing():
            return
        if self._left <= 0:
            self._finish()
        elif self._every_s:
            self._write([_delta(str(time.monotonic_ns()))])
            self._left -= 1
            self._due_s += self._every_s
            self._loop.call_at(self._due_s, self.go_on)
        elif not self._is_paused:
            frames = self._burst[: self._left]
            self._left -= len(frames)
            self._write(frames)
            self._loop.call_soon(self.go_on)

    def _finish(self) -> None:
        self._write([_END])
        last = _frame("message_stop", sha256=self._hash.hexdigest())
        self._transport.write(_chunk(last) + b"0\r\n\r\n")

    def _write(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._hash.update(frame)
        self._transport.write(b"".join(map(_chunk, frames)))  # each in a chunk of its own, as a node writes them


class _Connection(asyncio.Protocol):
    """Requests one after the other."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._stream: _Stream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        if self._stream is not None:
            self._stream.pause()

    def resume_writing(self) -> None:
        if self._stream is not None:
            self._stream.resume()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        head_ends = self._received.find(b"\r\n\r\n")
        if head_ends < 0:
            return
        length = _LENGTH.search(self._received, 0, head_ends)
        size = head_ends + 4 + (int(length[1]) if length else 0)
        if len(self._received) < size:
            return
        body = bytes(self._received[head_ends:size])
        del self._received[:size]
        if play := _PLAY.search(body):
            self._stream = _Stream(self._transport, int(play[1]), int(play[2]))
        else:
            self._transport.write(_WHOLE_ANSWER)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
