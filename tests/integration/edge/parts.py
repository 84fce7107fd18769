"""A real redis-server, a node that plays what a test tells it, and an edge built like the real one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from redis.asyncio import Redis

from edge.app import EdgeReadiness, build_edge_app
from edge.auth.accounts import RedisAccounts
from edge.auth.cache import RecordCache
from edge.auth.credentials import Credential, mint_credential
from edge.auth.invalidations import Invalidations
from edge.auth.key_record import KeyRecord
from edge.auth.key_store import RedisKeyStore
from edge.auth.scopes import INFERENCE_SCOPES
from edge.auth.sessions import RedisSessions
from edge.cluster import Cluster
from edge.identity import LOOKUP_CONNECTIONS, IdentityParts, opened_identity
from edge.metrics import observing_edge
from edge.proxy import Proxy
from edge.registry import EVERY_S, Registry
from edge.routing import IsSpent, Route, Router
from edge.settings import EdgeSection
from edge.signing import key_id
from edge.upstream import FindAnew, NodeClient
from shared.ids import new_record_id
from shared.node_hosts import NodeHosts
from shared.node_token import NodeToken, SigningKey, verify
from shared.operator import build_operator_app
from shared.redis import connect_redis
from shared.serve import Site, serving
from shared.web import render_anthropic, render_openai, render_problem
from tests.redis_server import as_user, assert_nothing_was_denied, free_port, prepare, url_of

MESSAGES = "/v1/infer/v1/messages"
MODELS = "/v1/infer/models"
WELL_WITHIN_S = 60.0
"""For what comes at once, on a machine that stands still for a while."""
START = b'event: message_start\ndata: {"type":"message_start"}\n\n'
DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_PRIVATE = Ed25519PrivateKey.generate()
SIGNING_KEY = SigningKey(key_id(_PRIVATE.public_key()), _PRIVATE)


@contextlib.asynccontextmanager
async def running_redis(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A redis-server of our own on `port`, killed at the end; it must have denied nothing by then."""
    process = await asyncio.create_subprocess_exec(*prepare(folder, port), stdout=asyncio.subprocess.DEVNULL)
    try:
        redis = connect_redis(url_of("operator", port))
        await until(lambda: answers(redis), 60)
        await redis.aclose()
        yield process
        if process.returncode is None and not is_stopped(process.pid):
            await asyncio.to_thread(assert_nothing_was_denied, url_of("operator", port))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def is_stopped(pid: int) -> bool:
    """Whether a test froze it."""
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


async def answers(redis: object) -> bool:
    """Whether Redis answers PING."""
    try:
        return bool(await redis.ping())  # type: ignore[attr-defined]
    except Exception:
        return False


async def until(is_so: Callable[[], Awaitable[bool]], within_s: float) -> float:
    """Wait until it is so, and return the seconds that this took."""
    begun = time.monotonic()
    while not await is_so():
        assert time.monotonic() - begun < within_s, "it did not come about in time"
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def say_hello(request: web.Request) -> web.StreamResponse:
    """The answer of a node whose test wants none in particular."""
    del request
    return web.json_response({"type": "message"}, headers={"Server-Timing": "parse;dur=1.00, total;dur=2.00"})


@dataclass
class FakeNode:
    """Verifies tokens like a node, notes what it gets, and answers as the test says."""

    id: str
    port: int
    answer: Answer = say_hello
    reads_bodies: bool = True
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    tokens: list[NodeToken] = field(default_factory=list)
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The one handler for every route."""
        token = request.headers["Authorization"].removeprefix("Bearer ")
        keys = {SIGNING_KEY.kid: SIGNING_KEY.private.public_key()}
        self.tokens.append(
            verify(token, keys, node_id=self.id, method=request.method, path=request.path, now_s=time.time())
        )
        self.requests.append(request)
        try:
            self.bodies.append(await request.content.read() if self.reads_bodies else b"")
            return await self.answer(request)
        except asyncio.CancelledError:
            self.abandoned.set()
            raise

    def app(self) -> web.Application:
        """The node's application."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{tail:.*}", self.handle)
        return app


@contextlib.asynccontextmanager
async def running_node(node_id: str = "n1") -> AsyncIterator[FakeNode]:
    """A node on a port of its own."""
    node = FakeNode(node_id, free_port())
    async with serving([Site(node.app(), render_anthropic, "127.0.0.1", node.port)], drain_s=0):
        yield node


@dataclass
class Edge:
    """A running edge and what tests need of it.

    Attributes:
        redis: an operator's, for what a test looks at and breaks.
    """

    url: str
    port: int
    operator_url: str
    store: RedisKeyStore
    accounts: RedisAccounts
    sessions: RedisSessions
    identity: IdentityParts
    redis: Redis

    @property
    def cache(self) -> RecordCache[KeyRecord]:
        """The keys that it remembers."""
        return self.identity.key_cache

    @property
    def invalidations(self) -> Invalidations:
        """Its subscription."""
        return self.identity.invalidations


@contextlib.asynccontextmanager
async def running_edge(
    redis_url: str,
    nodes: dict[str, str],
    wall_clock: Callable[[], float] = time.time,
    nodes_clock: Callable[[], float] = time.monotonic,
    /,
    *,
    look_every_s: float = EVERY_S,
    **settings: object,
) -> AsyncIterator[Edge]:
    """An edge in this process, wired as in `edge/__main__.py`, with time to connect to nodes of this process.

    Args:
        nodes_clock: of what it knows about nodes, their breakers too. look_every_s: how often it reads the registry.
    """
    port, operator_port = free_port(), free_port()
    section = EdgeSection.model_validate({"nodes": nodes, "port": port, "connect_s": 60, **settings})
    redis, operator = connect_redis(redis_url), connect_redis(as_user("operator", redis_url))
    lookups = connect_redis(redis_url, max_connections=LOOKUP_CONNECTIONS)
    cluster = Cluster(nodes, NodeHosts(section.node_hosts), nodes_clock)
    registry = Registry(redis, cluster, nodes_clock)
    async with (
        contextlib.AsyncExitStack() as held,
        redis,
        lookups,
        operator,
        opened_identity(redis, lookups, section, time.monotonic, wall_clock) as identity,
        registry.following(look_every_s),
        NodeClient.opened(section, cluster) as client,
    ):
        parts = Router(cluster), registry.look_again, client, SIGNING_KEY, section, time.time
        proxy = Proxy(identity.authenticator, *parts)
        readiness = EdgeReadiness(redis, identity.invalidations, cluster)
        app = build_edge_app(proxy, identity)
        observing = observing_edge(app, identity, proxy, cluster, client, readiness.durability)
        collectors = await held.enter_async_context(observing)
        sites = [
            Site(app, render_openai, "127.0.0.1", port),
            Site(build_operator_app(readiness.check, collectors), render_problem, "127.0.0.1", operator_port),
        ]
        async with serving(sites, drain_s=0):
            readiness.start()
            await until(lambda: is_following(identity.invalidations), 60)
            url, operator_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{operator_port}"
            stores = RedisKeyStore(redis), RedisAccounts(redis), RedisSessions(redis, wall_clock)
            yield Edge(url, port, operator_url, *stores, identity, operator)


def finding_nobody() -> FindAnew:
    """For a client of nodes: there are no others."""

    async def find(is_spent: IsSpent) -> Route:
        del is_spent
        return Route(())

    return find


async def is_following(invalidations: Invalidations) -> bool:
    """Whether the subscription is up."""
    return invalidations.is_connected


async def make_key(
    store: RedisKeyStore,
    *,
    scopes: tuple[str, ...] = INFERENCE_SCOPES,
    org: str = "acme",
    expires_at_s: int | None = None,
) -> tuple[KeyRecord, Credential]:
    """A new key in the store."""
    credential = mint_credential()
    record = KeyRecord(
        new_record_id("key"), "sk", org, "main", "test", scopes, "active", credential.hint, 1, expires_at_s
    )
    await store.create_key(credential.digest, record, create_missing=True)
    return record, credential
