"""Pass a request on to the node that serves its model, once, and its answer back unchanged.

Decides what a peer gets, and what is told where it does not answer. The peer admits, generates and bills; here
nothing is reserved. Must not know who serves what.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import ssl
from collections.abc import AsyncIterator, Sequence

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from node.handover import Handover
from shared.errors import BACKEND_UNAVAILABLE, ApiError
from shared.heartbeat import Heartbeat
from shared.hop import FOR_CLIENTS, FORWARDED, NOT_STARTED, REPEATED, STREAM_HEADERS
from shared.web import CONTEXT, Handler

CONNECT_S = 1.0
HEAD_S = 600.0
CHUNK_S = 60.0
MAX_WHOLE_BYTES = 64 << 20
_TO_PEER = ("Authorization", "Content-Type", "Accept", "anthropic-version", "anthropic-beta", "traceparent", REPEATED)
_BACK = (*FOR_CLIENTS, NOT_STARTED)
_log = logging.getLogger("b3os.forward")


class ServedElsewhere(Exception):
    """A request that makes sense, and whose model another node serves: to be passed on as it came."""

    def __init__(self, peer: Heartbeat, body: bytes) -> None:
        super().__init__(peer.id)
        self.peer, self.body = peer, body


class Forwarder:
    """Connections to other nodes.

    Attributes:
        forwarded: how many requests were passed on, for metrics.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.forwarded = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(
        cls, tls: ssl.SSLContext | None = None, traces: Sequence[aiohttp.TraceConfig] = ()
    ) -> AsyncIterator[Forwarder]:
        """For as long as the body runs. It adds nothing to what is sent, and unpacks nothing.

        Args:
            tls: for nodes with `https` URLs.
        """
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=True if tls is None else tls),
            trace_configs=[*traces],
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
        ) as session:
            yield cls(session)

    def around(self, handler: Handler, handover: Handover) -> Handler:
        """The handler, for requests that may be another node's. This one doesn't stop before they have their answers,
        and passes no more on then: the peer may have begun with what it got."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except ServedElsewhere as found:
                peer, body = found.peer, found.body
            with handover.kept():
                return await self._forward(request, peer, body)

        return handle

    async def _forward(self, request: web.Request, peer: Heartbeat, body: bytes) -> web.StreamResponse:
        context = request[CONTEXT]
        context.facts["forwarded_to"] = peer.id
        context.headers.clear()  # of our own look at the request: the peer's count
        context.phases.durations_ms.clear()
        self.forwarded += 1
        with context.phases.measure("forward"):
            upstream = await self._send(request, peer, body)
        try:
            context.upstream_timing = ", ".join(upstream.headers.getall("Server-Timing", ())) or None
            if upstream.content_type == "text/event-stream":
                return await self._relay_stream(request, upstream, peer)
            return await self._relay_whole(upstream, peer)
        finally:
            upstream.close()  # one that was not read to its end must stop

    async def _send(self, request: web.Request, peer: Heartbeat, body: bytes) -> aiohttp.ClientResponse:
        headers = _pick(request.headers, _TO_PEER)
        headers["Accept-Encoding"] = "identity"
        headers[FORWARDED] = "1"
        try:
            async with asyncio.timeout(HEAD_S):
                return await self._session.request(
                    request.method,
                    URL(peer.url + request.rel_url.raw_path, encoded=True),
                    data=io.BytesIO(body),
                    headers=headers,
                    allow_redirects=False,
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _unavailable(peer, error, {NOT_STARTED: "1"}) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(peer, error, {}) from None

    async def _relay_whole(self, upstream: aiohttp.ClientResponse, peer: Heartbeat) -> web.Response:
        body = bytearray()
        try:
            while chunk := await _read_chunk(upstream):
                body += chunk
                if len(body) > MAX_WHOLE_BYTES:
                    raise aiohttp.ClientPayloadError("too long")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(peer, error, {}) from None
        return web.Response(body=bytes(body), status=upstream.status, headers=_pick(upstream.headers, _BACK))

    async def _relay_stream(
        self, request: web.Request, upstream: aiohttp.ClientResponse, peer: Heartbeat
    ) -> web.StreamResponse:
        """A peer that breaks off breaks this answer off, too: the edge ends the stream for the client."""
        response = web.StreamResponse(status=upstream.status, headers=_pick(upstream.headers, _BACK))
        response.headers.update(STREAM_HEADERS)
        await response.prepare(request)
        try:
            while chunk := await _read_chunk(upstream):
                await response.write(chunk)
        except (aiohttp.ClientError, TimeoutError) as error:
            _log.error("peer broke off", extra={"facts": {"node": peer.id, "cause": type(error).__name__}})
            raise ConnectionResetError("the peer broke off") from None
        await response.write_eof()
        return response


async def _read_chunk(upstream: aiohttp.ClientResponse) -> bytes:
    async with asyncio.timeout(CHUNK_S):
        return await upstream.content.readany()


def _unavailable(peer: Heartbeat, error: Exception, headers: dict[str, str]) -> ApiError:
    _log.warning("peer failed", extra={"facts": {"node": peer.id, "cause": type(error).__name__}})
    message = "The node that serves this model does not answer; retry in 1 second"
    return ApiError(BACKEND_UNAVAILABLE, message, retry_after_s=1, headers=headers)


def _pick(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name in names for value in headers.getall(name, ()))
