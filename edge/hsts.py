"""Browsers that came by TLS come by nothing else (RFC 6797), where this edge itself ends TLS.

Decides under which names that is said: a dashboard's that stand on port 443. It binds a host with all its ports for a
year, so it must not be said of a machine's own names, nor where another port shows that the host is shared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from edge.auth.hosts import Hosts, is_loopback

VALUE = "max-age=31536000"
OnPrepare = Callable[[web.Request, web.StreamResponse], Awaitable[None]]


def build_hsts(hosts: Hosts) -> OnPrepare:
    """What is done right before a head is written."""

    async def say(request: web.Request, response: web.StreamResponse) -> None:
        name = hosts.dashboard_of(request.headers)
        if name is not None and not is_loopback(name) and ":" not in name:
            response.headers["Strict-Transport-Security"] = VALUE

    return say
