"""The edge's routes and its readiness.

Decides which route needs which scope, and in which shape errors are told. Must not know settings or the environment.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web
from redis.asyncio import Redis

from edge.api.gate import Gate
from edge.auth.invalidations import Invalidations
from edge.auth.store import StoreUnavailable
from edge.departures import Departures
from edge.identity import IdentityParts
from edge.openapi import load_documents
from edge.pages.served import load_pages
from edge.proxy import Proxy
from edge.routing import NodeDirectory
from shared.errors import NODE_UNAVAILABLE, ApiError
from shared.redis import FAILURES
from shared.redis_durability import Durability
from shared.web import Handler, Render, build_app, render_openai, render_problem

PREFIX = "/v1/infer"
OPEN = frozenset(("/v1/auth/login", "/v1/auth/device/code", "/v1/auth/device/token"))
"""For those who have no credential yet. A caller of the routes beside these is known before they begin."""
_log = logging.getLogger("b3os.edge.app")


def build_edge_app(proxy: Proxy, identity: IdentityParts, departures: Departures | None = None) -> web.Application:
    """The public application."""
    app = build_app(_choose_render)
    app.middlewares.append((departures or Departures()).middleware())
    messages = f"{PREFIX}/v1/messages"
    for path, node_path in (
        (messages, messages),
        (f"{PREFIX}/messages", messages),  # where the Vercel AI SDK asks, given the one base URL
        (f"{messages}/count_tokens", f"{messages}/count_tokens"),
    ):
        app.router.add_post(path, proxy.handler("infer:run", node_path))
    for path in ("models", r"models/{id:[\s\S]+}", "v1/models", r"v1/models/{id:[\s\S]+}"):
        handler = proxy.handler("models:read", count=identity.gate.count_list)
        app.router.add_get(f"{PREFIX}/{path}", handler, allow_head=False)
    app.router.add_route("HEAD", PREFIX, say_hello)
    keys, auth, device = identity.keys, identity.auth, identity.device
    for method, path, handler in (
        ("POST", "/v1/keys", keys.create_key),
        ("GET", "/v1/keys", keys.list_keys),
        ("DELETE", "/v1/keys/{id}", keys.revoke_key),
        ("GET", "/v1/requests", identity.requests.list_requests),
        ("GET", "/v1/requests/{id}", identity.requests.show_request),
        ("GET", "/v1/usage", identity.usage.show_usage),
        ("POST", "/v1/auth/login", auth.log_in),
        ("POST", "/v1/auth/logout", auth.log_out),
        ("GET", "/v1/auth/session", auth.show_session),
        ("POST", "/v1/auth/organization", auth.switch_organization),
        ("POST", "/v1/auth/password", auth.change_password),
        ("POST", "/v1/auth/device/code", device.begin),
        ("POST", "/v1/auth/device/token", device.fetch_token),
        ("GET", "/v1/auth/device", device.show),
        ("POST", "/v1/auth/device/decision", device.decide),
    ):
        app.router.add_route(method, path, _answering(identity.gate, handler, is_open=path in OPEN))
    for path, document in load_documents().items():
        app.router.add_get(path, document.serve, allow_head=False)
    for path, file in load_pages(identity.hosts).items():
        app.router.add_get(path, file.serve, allow_head=False)
    return app


def _answering(gate: Gate, handler: Handler, *, is_open: bool) -> Handler:
    """Let in who does not ask too often, and tell of a store that does not answer; for what is not known here."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            async with gate.admitted_unknown(request) if is_open else gate.admitted(request):
                return await handler(request)
        except StoreUnavailable as error:
            _log.error("store does not answer", extra={"facts": {"cause": str(error)}})
            raise ApiError(NODE_UNAVAILABLE, "the store does not answer right now", retry_after_s=1) from None

    return answer


async def say_hello(request: web.Request) -> web.Response:
    """Older agents look whether anybody is there, without a credential, before they ask."""
    del request
    return web.Response()


def _choose_render(request: web.BaseRequest) -> Render:
    is_inference = request.path == PREFIX or request.path.startswith(f"{PREFIX}/")
    return render_openai if is_inference else render_problem


class EdgeReadiness:
    """Whether this edge would serve: it listens, keys can be checked, a node is known, and it is not stopping."""

    def __init__(self, redis: Redis, invalidations: Invalidations, directory: NodeDirectory) -> None:
        self._redis = redis
        self._invalidations = invalidations
        self._directory = directory
        self._is_listening = self._is_stopping = False
        self.durability = Durability(redis)

    def start(self) -> None:
        """All ports are open. That of operators is before the public one, since it is the last to close."""
        self._is_listening = True

    def stop(self) -> None:
        """Tell load balancers to send nothing more."""
        self._is_stopping = True

    async def check(self) -> tuple[bool, dict[str, Any]]:
        """The verdict and the facts behind it, for `/readyz`."""
        nodes = {node.id: node.url for node in self._directory.list_nodes()}
        redis_answers = self._invalidations.is_connected or await self._ping()
        facts = {
            "redis": redis_answers,
            "redis_risks": self.durability.risks,
            "invalidations": self._invalidations.is_connected,
            "nodes": nodes,
            "registry": self._directory.is_fresh,
            "listening": self._is_listening,
            "stopping": self._is_stopping,
        }
        return self._is_listening and redis_answers and bool(nodes) and not self._is_stopping, facts

    async def _ping(self) -> bool:
        try:
            async with asyncio.timeout(1):
                await self._redis.ping()
        except FAILURES:
            return False
        return True
