"""The internal port: is this process alive, and would it serve?

Must not be reachable from outside: it tells states and counts, and asks for no credential.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from shared.web import build_app, json_response, render_problem

Readiness = Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]


def build_operator_app(readiness: Readiness) -> web.Application:
    """`/healthz` answers 200 while the process runs; `/readyz` answers 200 or 503 with what `readiness` told."""

    async def healthz(request: web.Request) -> web.Response:
        del request
        return json_response({"status": "ok"})

    async def readyz(request: web.Request) -> web.Response:
        del request
        is_ready, facts = await readiness()
        return json_response(
            {"status": "ready" if is_ready else "not ready", **facts}, status=200 if is_ready else 503
        )

    app = build_app(lambda request: render_problem, log_level=logging.DEBUG)  # probes come every second
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app
