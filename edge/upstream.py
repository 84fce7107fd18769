"""Send a request to a node, and read its answer within deadlines.

Decides when an attempt may be repeated, here or at another node: never after the first byte of an answer. Must not
know who calls, nor what is written to the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from edge.forward import NOT_ADDED
from edge.routing import Node, Route
from edge.settings import EdgeSection
from shared.errors import NODE_UNAVAILABLE, ApiError

# Shorter than the nodes' 75 s, so that the edge is the one to close an idle connection.
KEEPALIVE_S = 60
_log = logging.getLogger("b3os.edge.upstream")


class NodeLost(Exception):
    """A node broke off, before or within its answer. The message names the cause, for the log."""


class NodeNotReached(NodeLost):
    """No connection came about, so the node has seen nothing of the request."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that can be sent again."""

    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytes | None


@dataclass(slots=True)
class _Attempt:
    """Whether the connection had served before, and may thus have died while idle."""

    reused: bool = False


class NodeClient:
    """Connections to the nodes: pooled ones, and fresh ones for second attempts."""

    def __init__(self, pooled: aiohttp.ClientSession, fresh: aiohttp.ClientSession, deadlines: EdgeSection) -> None:
        self._pooled = pooled
        self._fresh = fresh
        self._deadlines = deadlines

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(
        cls, deadlines: EdgeSection, tls: ssl.SSLContext | None = None, traces: Sequence[aiohttp.TraceConfig] = ()
    ) -> AsyncIterator[NodeClient]:
        """A client for as long as the body runs; `tls` is for nodes with `https` URLs."""
        async with (
            _open_session(deadlines, tls, traces, reuse=True) as pooled,
            _open_session(deadlines, tls, traces, reuse=False) as fresh,
        ):
            yield cls(pooled, fresh, deadlines)

    async def send_request(self, route: Route, outgoing: Outgoing) -> aiohttp.ClientResponse:
        """Send to the first node of the route that can be reached, and wait for the head of its answer.

        Raises:
            ApiError: `NODE_UNAVAILABLE`; none could be reached, or the one that was broke off.
        """
        for node in route.nodes:
            try:
                return await self._send_to(node, outgoing)
            except NodeLost as error:
                facts = {"node": node.id, "cause": str(error), "reached": not isinstance(error, NodeNotReached)}
                _log.warning("node failed", extra={"facts": facts})
                if not isinstance(error, NodeNotReached):
                    break
        raise ApiError(NODE_UNAVAILABLE, "no node answers", retry_after_s=1)

    async def _send_to(self, node: Node, outgoing: Outgoing) -> aiohttp.ClientResponse:
        attempt = _Attempt()
        try:
            return await self._attempt(self._pooled, node, outgoing, attempt)
        except NodeNotReached:
            raise
        except NodeLost as error:
            if not attempt.reused or isinstance(error.__cause__, TimeoutError):
                raise
        # It most likely died while idle. If the node did take the request, it answers 409 to the same token.
        return await self._attempt(self._fresh, node, outgoing, attempt)

    async def _attempt(
        self, session: aiohttp.ClientSession, node: Node, outgoing: Outgoing, attempt: _Attempt
    ) -> aiohttp.ClientResponse:
        """One request on one connection.

        Raises:
            NodeNotReached, NodeLost: see there.
        """
        try:
            async with asyncio.timeout(self._deadlines.head_s):
                return await session.request(
                    outgoing.method,
                    URL(node.url + outgoing.path, encoded=True),  # as it came: `%2F` in a model's id is no slash
                    data=None if outgoing.body is None else io.BytesIO(outgoing.body),  # written in pieces
                    headers=outgoing.headers,
                    allow_redirects=False,
                    trace_request_ctx=attempt,
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NodeNotReached(type(error).__name__) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise NodeLost(type(error).__name__) from error


def _open_session(
    deadlines: EdgeSection, tls: ssl.SSLContext | None, traces: Sequence[aiohttp.TraceConfig], *, reuse: bool
) -> aiohttp.ClientSession:
    """A session that adds nothing to what is sent and changes nothing of what comes back."""
    trusted = True if tls is None else tls
    connector = (
        aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ssl=trusted)
        if reuse
        else aiohttp.TCPConnector(limit=0, force_close=True, ssl=trusted)
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        skip_auto_headers=NOT_ADDED,
        # Heads and silences have deadlines of their own: aiohttp's read timeout can't tell one from the other.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=deadlines.connect_s),
        trace_configs=[_trace_reuse(), *traces],
    )


def _trace_reuse() -> aiohttp.TraceConfig:
    """aiohttp tells of reuse through its tracing alone."""

    async def note(
        session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceConnectionReuseconnParams
    ) -> None:
        del session, params
        context.trace_request_ctx.reused = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(note)
    return trace


async def read_chunks(upstream: aiohttp.ClientResponse, silence_s: float) -> AsyncIterator[bytes]:
    """The body as it comes, unchanged.

    Raises:
        NodeLost: the connection broke, or nothing came for `silence_s` seconds.
    """
    while True:
        try:
            async with asyncio.timeout(silence_s):
                chunk = await upstream.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise NodeLost(type(error).__name__) from error
        if not chunk:
            return
        yield chunk
