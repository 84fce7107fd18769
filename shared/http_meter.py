"""Counts requests for Prometheus: by group of routes, status, and reason of a refusal.

Decides names and labels of what both sides count alike. Every label has a fixed set of values, so that no caller can
make more of them. Must not know any route: which belongs to which group, the side that has them says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import Counter, Gauge, Histogram, Metric
from prometheus_client.registry import Collector

from shared import errors
from shared.web import CONTEXT, Handler

NO_ROUTE, OTHER = "none", "other"
LEFT = "499"
_STATUSES = ("2xx", "3xx", "4xx", "5xx", LEFT)
_CODES = sorted({value.code for value in vars(errors).values() if isinstance(value, errors.Condition)})
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
Told = Callable[[str, web.Request, int], None]


class HttpMeter(Collector):
    """What one application answered.

    A request counts once, when its answer has ended: a stream's last byte, and not its head.
    """

    def __init__(
        self,
        groups: Mapping[str, str],
        clock: Callable[[], float] = time.perf_counter,
        *,
        on_end: Told = lambda group, request, status: None,
    ) -> None:
        """`groups` maps the path of a route, as it was added, to its group; the others are `other`.

        `on_end` is told group, request and status of each, 499 where the client had left.
        """
        self._groups, self._clock, self._on_end = groups, clock, on_end
        names = sorted({*groups.values(), OTHER, NO_ROUTE})
        self._requests = Counter("b3os_http_requests", "Requests that ended.", ["route", "status"], registry=None)
        self._running = Gauge("b3os_http_running", "Requests that run.", ["route"], registry=None)
        self._seconds = Histogram(
            "b3os_http_request_seconds",
            "From a request's head to its answer's last byte.",
            ["route"],
            registry=None,
            buckets=_BUCKETS_S,
        )
        self._refusals = Counter("b3os_http_refusals", "Refusals by the code that was told.", ["code"], registry=None)
        for name in names:
            self._running.labels(name)
            self._seconds.labels(name)
            for status in _STATUSES:
                self._requests.labels(name, status)
        for code in _CODES:
            self._refusals.labels(code)

    def collect(self) -> Iterator[Metric]:
        """The counts of this moment."""
        for metric in (self._requests, self._running, self._seconds, self._refusals):
            yield from metric.collect()

    def attach(self, app: web.Application) -> None:
        """Count what `app` answers, its refusals included."""
        app.middlewares.insert(0, self._middleware())

    def _middleware(self) -> Middleware:
        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            group = self._group_of(request)
            running, began_s, status = self._running.labels(group), self._clock(), int(LEFT)
            running.inc()
            try:
                response = await handler(request)
                status = response.status
                return response
            finally:
                running.dec()
                self._seconds.labels(group).observe(self._clock() - began_s)
                self._note(group, request, status)

        return count

    def _group_of(self, request: web.Request) -> str:
        resource = request.match_info.route.resource
        return NO_ROUTE if resource is None else self._groups.get(resource.canonical, OTHER)

    def _note(self, group: str, request: web.Request, status: int) -> None:
        self._requests.labels(group, LEFT if status == int(LEFT) else f"{status // 100}xx").inc()
        code = request[CONTEXT].facts.get("code") if CONTEXT in request else None
        if code in _CODES:
            self._refusals.labels(str(code)).inc()
        self._on_end(group, request, status)
