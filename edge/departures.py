"""Requests under way in an edge, and how they end when it can't wait for them any longer.

Decides that each has an end of its own: a plain 503 before the head, the `error` event within a stream (`relay`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from shared.errors import NODE_UNAVAILABLE, ApiError
from shared.tasks import Interruption
from shared.web import CONTEXT, Handler

INTERRUPTION: web.RequestKey[Interruption] = web.RequestKey("interruption", Interruption)


class Departures:
    """All of them.

    Attributes:
        were_cut: how many did not end by themselves.
    """

    def __init__(self) -> None:
        self._under_way: set[Interruption] = set()
        self.were_cut = 0

    @property
    def under_way(self) -> int:
        """How many have not ended."""
        return len(self._under_way)

    def middleware(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        """For each request, within the middleware that renders errors."""

        @web.middleware
        async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._observe(request, handler)

        return observe

    async def _observe(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        interruption = request[INTERRUPTION] = Interruption()
        self._under_way.add(interruption)
        try:
            return await handler(request)
        except asyncio.CancelledError:
            if request[CONTEXT].has_begun or not interruption.absorb():
                raise
            raise ApiError(NODE_UNAVAILABLE, "this server is stopping; ask again", retry_after_s=1) from None
        finally:
            self._under_way.discard(interruption)

    def cut(self) -> None:
        """End them all."""
        self.were_cut += self.under_way
        for interruption in list(self._under_way):
            interruption.interrupt()
