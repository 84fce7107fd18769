"""The path of a proxied request: who calls, where to, the body, the token, the node's answer.

Decides the order of these steps. Must not know how any of them is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import aiohttp
from aiohttp import web

from edge.auth.authenticate import Authenticator, Identity, caller_of
from edge.budget import BodyBudget, Lease
from edge.cluster import Carried
from edge.forward import build_request_headers, join_timing
from edge.relay import relay_answer
from edge.routing import IsSpent, Route, Router
from edge.settings import EdgeSection
from edge.upstream import REJECTIONS, NodeClient, Outgoing
from shared.errors import BODY_TOO_LARGE, NODE_UNAVAILABLE, ApiError
from shared.node_token import Caller, SigningKey, mint
from shared.web import CONTEXT, Handler, read_body

Count = Callable[[Identity], None]
"""Counts a request for its caller, and refuses one too many."""
LookAgain = Callable[[], Awaitable[object]]
"""Has it read anew who is there."""


class Proxy:
    """Makes handlers that forward a route to a node."""

    def __init__(
        self,
        authenticator: Authenticator,
        router: Router,
        look_again: LookAgain,
        client: NodeClient,
        signing_key: SigningKey,
        settings: EdgeSection,
        wall_clock: Callable[[], float],
    ) -> None:
        """`wall_clock` gives Unix seconds, for the tokens."""
        self._authenticator = authenticator
        self._router = router
        self._look_again = look_again
        self._client = client
        self._signing_key = signing_key
        self._settings = settings
        self._wall_clock = wall_clock
        self._budget = BodyBudget(settings.max_bodies_bytes, settings.max_bodies_per_organization_bytes)

    @property
    def held_bytes(self) -> int:
        """Bodies that are held right now."""
        return self._budget.held_bytes

    @property
    def most_held_bytes(self) -> int:
        """And how many bytes of them may be."""
        return self._settings.max_bodies_bytes

    def handler(self, scope: str, node_path: str | None = None, count: Count = lambda identity: None) -> Handler:
        """A handler for callers with `scope`, answered by the node's `node_path`, or by its route of this name.

        Args:
            count: where no node does.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            context = request[CONTEXT]
            with context.phases.measure("edge_auth"):
                identity = await self._authenticator.identify(request, scope)
                caller = caller_of(identity)
            context.facts.update(org=caller.org, actor=caller.actor_id)
            count(identity)
            with Carried() as carried:
                with self._budget.lease(caller.org) as lease:
                    body = await self._read_body(request, lease)
                    route = self._router.pick_route(caller.org, body)
                    outgoing = self._build_outgoing(request, caller, node_path or request.path, body)
                    find_anew = partial(self._find_route_anew, caller.org, body)
                    with context.phases.measure("edge_upstream"):
                        upstream = await self._client.send_request(route, outgoing, carried, find_anew)
                del body, outgoing, find_anew  # a stream may last for minutes
                _refuse_rejection(upstream)
                context.upstream_timing = join_timing(upstream.headers)
                return await relay_answer(request, upstream, self._settings)

        return handle

    async def _find_route_anew(self, org: str, body: bytes | None, is_spent: IsSpent) -> Route:
        await self._look_again()
        return self._router.pick_route(org, body, is_spent)

    async def _read_body(self, request: web.Request, lease: Lease) -> bytes | None:
        if request.method == "GET":
            return None
        return await read_body(request, self._settings.max_request_bytes, self._too_large, lease.add)

    def _too_large(self, announced_bytes: int | None) -> ApiError:
        size = "" if announced_bytes is None else f" of {announced_bytes} bytes"
        limit = self._settings.max_request_bytes
        return ApiError(BODY_TOO_LARGE, f"the request body{size} is over the limit of {limit} bytes")

    def _build_outgoing(self, request: web.Request, caller: Caller, node_path: str, body: bytes | None) -> Outgoing:
        """Tokens are minted when the body is there: they live for 60 s, and an upload may take longer."""

        def sign(route: Route) -> str:
            return mint(
                self._signing_key,
                caller,
                audience=route.audience,
                request_id=request[CONTEXT].request_id,
                method=request.method,
                path=node_path,
                now_s=int(self._wall_clock()),
            )

        # A query pages a list; in a POST it is a client's own affair (`?beta=true`), and no node asks for it.
        target = request.rel_url.raw_path_qs if request.method == "GET" else node_path
        return Outgoing(request.method, target, build_request_headers(request.headers), body, sign)


def _refuse_rejection(upstream: aiohttp.ClientResponse) -> None:
    """A token that a node does not take is a fault between us: the caller's credential was good.

    Raises:
        ApiError: `NODE_UNAVAILABLE`.
    """
    if upstream.status in REJECTIONS:
        upstream.close()
        raise ApiError(NODE_UNAVAILABLE, "no node accepts the request", retry_after_s=1)
