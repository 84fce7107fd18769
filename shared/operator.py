"""The internal port: is this process alive, would it serve, and what has it counted?

Must not be reachable from outside: it tells states and counts, and asks for no credential.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector

from shared.web import build_app, json_response, render_problem

Readiness = Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]
disable_created_metrics()  # type: ignore[no-untyped-call]  # when each series began: twice the lines, and nobody asks


def build_operator_app(readiness: Readiness, collectors: Sequence[Collector] = ()) -> web.Application:
    """`/healthz` answers 200 while the process runs; `/readyz` answers 200 or 503 with what `readiness` told.

    `/metrics` is what the collectors count, and the process itself, in Prometheus' text format.
    """
    registry = CollectorRegistry()
    build = Info("b3os_build", "What runs here.", registry=None)
    build.info({"version": version("b3os")})
    for collector in (ProcessCollector(registry=None), build, *collectors):
        registry.register(collector)
    # Collectors may read a disk, and must answer also when all other threads are busy: that is when they are needed.
    reader = ThreadPoolExecutor(1, thread_name_prefix="metrics")

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
        body = await asyncio.get_running_loop().run_in_executor(reader, generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def close(app: web.Application) -> AsyncIterator[None]:
        del app
        yield
        reader.shutdown(wait=False)

    app = build_app(lambda request: render_problem, log_level=logging.DEBUG)  # probes come every second
    app.cleanup_ctx.append(close)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app
