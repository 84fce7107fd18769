"""Send a request to a node, and read its answer within deadlines.

Decides when an attempt may be repeated, here or at another node: never after the first byte of an answer, and at no
more than one other node that may have seen the request. Two that have it do no harm: what they reserve has one owner,
and is billed once. Nobody is turned away because of what was known a second ago: who is there is asked anew before.
Must not know who calls, nor what is written to the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import math
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from edge.cluster import Carried, Cluster, Node
from edge.forward import NOT_ADDED
from edge.routing import IsSpent, Route
from edge.settings import EdgeSection
from shared.errors import NODE_UNAVAILABLE, ApiError
from shared.hop import NOT_STARTED, REPEATED

# Shorter than the nodes' 75 s, so that the edge is the one to close an idle connection.
KEEPALIVE_S = 60
TAKEOVER_S = 1.0
"""How long a node may take to accept a connection while another could."""
REJECTIONS = (401, 409)
"""Statuses with which a node refuses a token: one that it doesn't believe, or one that was used."""
REJECTED = "a node rejected the edge's token: are its public keys, its id and its clock right?"
FindAnew = Callable[[IsSpent], Awaitable[Route]]
"""The route of the same request as of now, of those that it has not asked."""
_log = logging.getLogger("b3os.edge.upstream")


class NodeLost(Exception):
    """A node broke off, before or within its answer. The message names the cause, for the log."""


class NodeNotReached(NodeLost):
    """No connection came about, so the node has seen nothing of the request."""


class NodeTooSlow(NodeLost):
    """It lives, and did not begin to answer in time. Nobody else is asked: the caller has waited long enough."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that can be sent again.

    Attributes:
        sign: a new token for it, for the nodes of a route. One before may have grown too old while a node had it.
    """

    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytes | None
    sign: Callable[[Route], str]

    def headers_for(self, route: Route, place: int) -> CIMultiDict[str]:
        """What the how many-th node gets that is asked."""
        headers = self.headers.copy()
        headers["Authorization"] = f"Bearer {self.sign(route)}"
        if place > 1:
            headers[REPEATED] = str(place)
        return headers


class _Trip:
    """Whom a request asks in turn.

    Attributes:
        route: that it is on. place: how many it has asked.
    """

    def __init__(self, route: Route, find_anew: FindAnew) -> None:
        self.route, self.place = route, 0
        self._left = deque(route.nodes)
        self._find_anew: FindAnew | None = find_anew
        self._asked: set[tuple[str, str]] = set()
        self._have_answered: set[str] = set()

    @property
    def has_other(self) -> bool:
        """Whether another one is known already."""
        return bool(self._left)

    def next(self) -> Node:
        """Who is asked now; there must be one."""
        node = self._left.popleft()
        self._asked.add((node.id, node.boot))
        self.place += 1
        return node

    def note_answer(self, node: Node) -> None:
        """It was reached. Which process of its id answered is not known here: the id that is known may be older."""
        self._have_answered.add(node.id)

    def is_spent(self, node: Node) -> bool:
        """Whether not to ask it again; it is asked where another process has taken the place of a lost one."""
        return node.id in self._have_answered or (node.id, node.boot) in self._asked

    async def goes_on(self) -> bool:
        """Whether there is another one to ask; at the end of the first route as of now."""
        if not self._left and self._find_anew is not None:
            find_anew, self._find_anew = self._find_anew, None
            self.route = await find_anew(self.is_spent)
            self._left.extend(self.route.nodes)
        return bool(self._left)


@dataclass(slots=True)
class _Attempt:
    """What goes to one node.

    Attributes:
        reused: whether the connection had served before, and may thus have died while idle.
    """

    headers: CIMultiDict[str]
    connect_s: float
    reused: bool = False


class NodeClient:
    """Connections to the nodes: pooled ones, and fresh ones for second attempts.

    Attributes:
        taken_over: requests that another node than the chosen one answered, by what was wrong with that, for metrics.
    """

    def __init__(
        self,
        pooled: aiohttp.ClientSession,
        fresh: aiohttp.ClientSession,
        deadlines: EdgeSection,
        cluster: Cluster,
    ) -> None:
        self._pooled = pooled
        self._fresh = fresh
        self._deadlines = deadlines
        self._cluster = cluster
        self.taken_over: Counter[str] = Counter()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(
        cls,
        deadlines: EdgeSection,
        cluster: Cluster,
        tls: ssl.SSLContext | None = None,
        traces: Sequence[aiohttp.TraceConfig] = (),
    ) -> AsyncIterator[NodeClient]:
        """A client for as long as the body runs; `tls` is for nodes with `https` URLs."""
        async with (
            _open_session(deadlines, tls, traces, reuse=True) as pooled,
            _open_session(deadlines, tls, traces, reuse=False) as fresh,
        ):
            yield cls(pooled, fresh, deadlines, cluster)

    async def send_request(
        self, route: Route, outgoing: Outgoing, carried: Carried, find_anew: FindAnew
    ) -> aiohttp.ClientResponse:
        """Send to the first node of the route that takes it, and wait for the head of its answer.

        Args:
            find_anew: asked once, when this route has come to its end.

        Raises:
            ApiError: `NODE_UNAVAILABLE`; there is none, none could be reached, or those that were broke off.
        """
        trip, lost, why = _Trip(route, find_anew), 0, ""
        while lost < 2 and await trip.goes_on():
            node = trip.next()
            carried.move(node)
            tries_until_s = self._cluster.note_begin(node)
            headers = outgoing.headers_for(trip.route, trip.place)
            try:
                answer = await self._send_to(node, outgoing, headers, has_other=trip.has_other)
            except NodeLost as error:
                self._note_loss(node, error)
                lost += not isinstance(error, NodeNotReached)
                why = type(error).__name__
                if isinstance(error, NodeTooSlow):
                    break
                continue
            except asyncio.CancelledError:
                self._cluster.note_abandoned(node, tries_until_s)
                raise
            trip.note_answer(node)
            refusal = self._note_answer(node, answer)
            if refusal and await _goes_on_without(answer, trip):
                if refusal == "NotStarted":
                    self._cluster.note_not_started(node)
                why = refusal
                continue
            if why:
                self.taken_over[why] += 1
            return answer
        carried.move(None)
        raise ApiError(NODE_UNAVAILABLE, "no node answers", retry_after_s=1)

    def _note_answer(self, node: Node, answer: aiohttp.ClientResponse) -> str:
        """Why another node may be asked, since this one has not begun; empty where this is the answer."""
        if answer.status == 409:
            _log.warning("a node had this request already", extra={"facts": {"node": node.id}})
        if answer.status == 401:  # it has not begun with what it doesn't believe
            _log.error(REJECTED, extra={"facts": {"node": node.id}})
            self._cluster.note_failure(node)
            return "Rejected"
        self._cluster.note_success(node)
        if NOT_STARTED not in answer.headers:
            return ""
        _log.info("node takes nothing now", extra={"facts": {"node": node.id}})
        return "NotStarted"

    def _note_loss(self, node: Node, error: NodeLost) -> None:
        reached = not isinstance(error, NodeNotReached)
        _log.warning("node failed", extra={"facts": {"node": node.id, "cause": str(error), "reached": reached}})
        if not isinstance(error, NodeTooSlow):
            self._cluster.note_failure(node)

    async def _send_to(
        self, node: Node, outgoing: Outgoing, headers: CIMultiDict[str], *, has_other: bool
    ) -> aiohttp.ClientResponse:
        attempt = _Attempt(headers, min(self._deadlines.connect_s, TAKEOVER_S if has_other else math.inf))
        try:
            return await self._attempt(self._pooled, node, outgoing, attempt)
        except (NodeNotReached, NodeTooSlow):
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
            NodeNotReached, NodeTooSlow, NodeLost: see there.
        """
        try:
            async with _until_lost(node, self._deadlines.head_s):
                return await session.request(
                    outgoing.method,
                    URL(node.url + outgoing.path, encoded=True),  # as it came: `%2F` in a model's id is no slash
                    data=None if outgoing.body is None else io.BytesIO(outgoing.body),  # written in pieces
                    headers=attempt.headers,
                    allow_redirects=False,
                    trace_request_ctx=attempt,
                    timeout=_timeout(attempt.connect_s),
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NodeNotReached(type(error).__name__) from error
        except TimeoutError as error:
            if node.is_there:
                raise NodeTooSlow("no head in time") from error
            raise NodeLost("no heartbeat") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NodeLost(type(error).__name__) from error


async def _goes_on_without(answer: aiohttp.ClientResponse, trip: _Trip) -> bool:
    """Whether another node is asked; the answer is closed then, and where its client leaves meanwhile."""
    goes_on = True
    try:
        goes_on = await trip.goes_on()
    finally:
        if goes_on:
            answer.close()
    return goes_on


@contextlib.asynccontextmanager
async def _until_lost(node: Node, within_s: float) -> AsyncIterator[None]:
    """Within a deadline, which comes at once if the node's heartbeat ends.

    Raises:
        TimeoutError: either came.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(within_s) as deadline:

        def give_up() -> None:
            if not deadline.expired():
                deadline.reschedule(loop.time())

        with node.watched(give_up):
            yield


def _timeout(connect_s: float) -> aiohttp.ClientTimeout:
    """Heads and silences have deadlines of their own: aiohttp's read timeout can't tell one from the other."""
    return aiohttp.ClientTimeout(total=None, connect=connect_s)  # names are looked up in it, too


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
        timeout=_timeout(deadlines.connect_s),
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
