"""Bring a node's answer to the client, whole or as it comes.

Decides how an answer ends when the node or the client does. Must not know credentials, routes or retries.
"""

from __future__ import annotations

import asyncio
import logging

import aiohttp
from aiohttp import web

from edge.departures import INTERRUPTION
from edge.forward import build_response_headers
from edge.frames import FrameCutter, FrameTooLong, render_broken
from edge.settings import EdgeSection
from edge.upstream import NodeLost, read_chunks
from shared.errors import NODE_UNAVAILABLE, ApiError
from shared.hop import STREAM_HEADERS
from shared.web import CONTEXT

MAX_WHOLE_BYTES = 64 << 20
STOPPING = "this edge stops"
_log = logging.getLogger("b3os.edge.relay")


async def relay_answer(
    request: web.Request, upstream: aiohttp.ClientResponse, deadlines: EdgeSection
) -> web.StreamResponse:
    """Answer `request` with what `upstream` holds; however this ends, the node's connection is not left open.

    Raises:
        ApiError: `NODE_UNAVAILABLE`; the node broke off, and nothing was written yet.
    """
    try:
        if upstream.content_type == "text/event-stream":
            return await _relay_stream(request, upstream, deadlines)
        return await _relay_whole(request, upstream, deadlines)
    finally:
        # A body read to its end has given its connection back already. Any other is closed, so that the node stops.
        upstream.close()


async def _relay_whole(
    request: web.Request, upstream: aiohttp.ClientResponse, deadlines: EdgeSection
) -> web.StreamResponse:
    """Read all before the head is written, so that a node that breaks off is still a plain 503."""
    body = bytearray()
    try:
        async for chunk in read_chunks(upstream, deadlines.chunk_s):
            body += chunk
            if len(body) > MAX_WHOLE_BYTES:
                raise NodeLost("the body is too long")
    except NodeLost as error:
        _log.error("node broke off", extra={"facts": {"cause": str(error)}})
        raise ApiError(
            NODE_UNAVAILABLE, "the node was lost before the answer was complete", retry_after_s=1
        ) from None
    response = web.Response(
        body=bytes(body), status=upstream.status, headers=build_response_headers(upstream.headers)
    )
    async with _Outlet(request, deadlines.stalled_client_s):
        await response.prepare(request)
        await response.write_eof()
    return response


async def _relay_stream(
    request: web.Request, upstream: aiohttp.ClientResponse, deadlines: EdgeSection
) -> web.StreamResponse:
    """Pass whole frames as they come; where the terminal event fails to come, write one."""
    headers = build_response_headers(upstream.headers)
    headers.update(STREAM_HEADERS)
    response = web.StreamResponse(status=upstream.status, headers=headers)
    outlet = _Outlet(request, deadlines.stalled_client_s)
    async with outlet:
        await response.prepare(request)
    cutter = FrameCutter()
    cause = "no terminal event"
    try:
        async for chunk in read_chunks(upstream, deadlines.chunk_s):
            if frames := cutter.feed(chunk):
                async with outlet:
                    await response.write(frames)
            if outlet.is_closed:
                return response
    except (NodeLost, FrameTooLong) as error:
        cause = str(error) or type(error).__name__
    except asyncio.CancelledError:
        if not request[INTERRUPTION].absorb():
            raise
        cause = STOPPING
    async with outlet:
        if not cutter.has_ended:
            await _write_end(request, response, cause)
        await response.write_eof()
    return response


async def _write_end(request: web.Request, response: web.StreamResponse, cause: str) -> None:
    """The `error` event in the place of the node's end."""
    context = request[CONTEXT]
    if cause is STOPPING:
        context.facts["ended_by"] = "edge"
        await response.write(render_broken(context.request_id, "the server stopped before the answer was complete"))
        return
    context.facts["ended_by"] = "node"
    _log.error("node broke off within a stream", extra={"facts": {"cause": cause}})
    await response.write(render_broken(context.request_id, "the node was lost before the answer was complete"))


class _Outlet:
    """Bounds each write to the client, and takes its end quietly: the log line of the request tells of it.

    Attributes:
        is_closed: whether the client has gone, or was cut for taking nothing.
    """

    __slots__ = ("_deadline", "_request", "_stalled_s", "is_closed")

    def __init__(self, request: web.Request, stalled_s: float) -> None:
        self._request = request
        self._stalled_s = stalled_s
        self._deadline: asyncio.Timeout | None = None
        self.is_closed = False

    async def __aenter__(self) -> None:
        self._deadline = asyncio.timeout(self._stalled_s)
        await self._deadline.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        assert self._deadline is not None  # noqa: S101 - entered before it is left
        try:
            await self._deadline.__aexit__(kind, error, None)
        except TimeoutError:
            self._close("stalled client")
            if self._request.transport is not None:
                self._request.transport.abort()
            return True
        if isinstance(error, ConnectionError):
            self._close("client")
            return True
        return False

    def _close(self, ended_by: str) -> None:
        self.is_closed = True
        self._request[CONTEXT].facts["ended_by"] = ended_by
