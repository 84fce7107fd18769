"""Events to the wire: framing, pings, and what becomes of a failure after the head.

Decides bytes and silences. Must not know what the events mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
from aiohttp import web
from aiohttp_sse import EventSourceResponse

PING_AFTER_S = 10
STALLED_CLIENT_S = 120
_ROOM_BYTES = 65_536  # what an empty transport takes before it makes a writer wait
_NEVER_S = 10 * 365 * 86_400  # aiohttp-sse's own pings are comments; ours are events
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def encode_event(event: dict[str, Any]) -> bytes:
    """One frame, lines ended by LF as Anthropic's are. JSON escapes line ends, so data is always one line."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


class EventStream:
    """A started response; every write that may wait has a deadline, and a ping breaks each silence."""

    def __init__(self, response: EventSourceResponse, transport: asyncio.Transport | None) -> None:
        self.response, self._transport = response, transport
        self._last_write_s = time.monotonic()

    async def send(self, events: list[dict[str, Any]]) -> None:
        """Write frames together.

        Raises:
            ConnectionError: the client is gone.
            TimeoutError: the client took nothing for `STALLED_CLIENT_S` seconds.
        """
        await self._write(b"".join(map(encode_event, events)))

    async def _write(self, data: bytes) -> None:
        self._last_write_s = time.monotonic()
        if self._has_room(data):  # it won't wait: a timer would cost as much as all else that a token costs
            await self.response.write(data)
        else:
            await self._write_in_time(data)

    def _has_room(self, data: bytes) -> bool:
        transport = self._transport
        return transport is None or (transport.get_write_buffer_size() == 0 and len(data) < _ROOM_BYTES)

    async def _write_in_time(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(STALLED_CLIENT_S):
                await self.response.write(data)
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()  # a graceful close would wait for the same client
            raise

    async def ping_when_silent(self, after_s: float) -> None:
        """Write a ping after each `after_s` seconds without a frame, until cancelled or the client is gone."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            while True:
                silent_s = time.monotonic() - self._last_write_s
                if silent_s >= after_s:
                    await self._write(_PING)
                else:
                    await asyncio.sleep(after_s - silent_s)


@contextlib.asynccontextmanager
async def event_stream(request: web.Request, *, ping_after_s: float = PING_AFTER_S) -> AsyncIterator[EventStream]:
    """Write the head, then let the body write frames; pings run until the body ends."""
    response = EventSourceResponse(
        allow_all_methods=True, sep="\n", ping_interval=_NEVER_S, send_timeout=STALLED_CLIENT_S
    )
    response.headers["Cache-Control"] = "no-cache, no-transform"
    if request.transport is None:  # aiohttp-sse asserts that there is one
        raise ConnectionResetError("the client left before the head")
    await response.prepare(request)
    stream = EventStream(response, request.transport)
    pings = asyncio.create_task(stream.ping_when_silent(ping_after_s))
    async with response:
        try:
            yield stream
        finally:
            pings.cancel()
            await asyncio.gather(pings, return_exceptions=True)
        await response.write_eof()
