"""The internal port: is this process alive, would it serve, and what has it counted?

Must not be reachable from outside: it tells states and counts, and asks for no credential.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from shared.web import build_app, json_response, render_problem

Readiness = Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]


def build_operator_app(readiness: Readiness, collectors: Sequence[Collector] = ()) -> web.Application:
    """`/healthz` answers 200 while the process runs; `/readyz` answers 200 or 503 with what `readiness` told.

    `/metrics` is what the collectors count, and the process itself, in Prometheus' text format.
    """
    registry = CollectorRegistry()
    for collector in (ProcessCollector(registry=None), *collectors):
        registry.register(collector)

    async def healthz(request: web.Request) -> web.Response:
        del request
        return json_response({"status": "ok"})

    async def readyz(request: web.Request) -> web.Response:
        del request
        is_ready, facts = await readiness()
        return json_response(
            {"status": "ready" if is_ready else "not ready", **facts}, status=200 if is_ready else 503
        )

    async def metrics(request: web.Request) -> web.Response:
        del request
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = build_app(lambda request: render_problem, log_level=logging.DEBUG)  # probes come every second
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app
