"""Spans of requests by OpenTelemetry: one for each side of a request, joined by `traceparent` (W3C Trace Context).

Decides what a span tells: method, route, status, code of a refusal, the id by which the log knows the request, and
its phases. Never a body, a header, a path with ids, an organization or a key. The only module that imports
opentelemetry.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Middleware
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, format_trace_id, set_span_in_context, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.errors import INTERNAL, ApiError
from shared.timing import Phases
from shared.web import CONTEXT, Handler

EXPORT_S = 5
_HEADERS = ("traceparent", "tracestate")
_PROPAGATOR = TraceContextTextMapPropagator()


def build_sampler(ratio: float) -> Sampler:
    """Which requests are traced: where a trace begins by its id, and from there on as it was decided then."""
    return ParentBased(TraceIdRatioBased(ratio))


@contextlib.asynccontextmanager
async def open_otel(service: str, endpoint: str, ratio: float, *, trusts_callers: bool) -> AsyncIterator[OtelTracing]:
    """Export in a thread of the SDK's; what doesn't fit into its queue is dropped, and no request waits for it.

    The SDK's own variables count too (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`, …).
    """
    provider = TracerProvider(build_sampler(ratio), Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=EXPORT_S)))
    try:
        yield OtelTracing(provider, trusts_callers=trusts_callers)
    finally:
        await asyncio.to_thread(provider.shutdown)


class OtelTracing:
    """See `shared.tracing.Tracing`."""

    def __init__(self, provider: TracerProvider, *, trusts_callers: bool) -> None:
        self._tracer = provider.get_tracer("b3os")
        self._trusts_callers = trusts_callers

    def attach(self, app: web.Application) -> None:
        """Inside of what renders errors, so that refusals are seen as what they are."""
        app.middlewares.append(self._middleware())

    def client_traces(self) -> Sequence[aiohttp.TraceConfig]:
        """Each request tells its span as the parent, in place of what the caller had told."""

        async def inject(
            session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestStartParams
        ) -> None:
            del session, context
            for name in _HEADERS:
                params.headers.pop(name, None)
            _PROPAGATOR.inject(params.headers)

        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(inject)
        return (trace,)

    def _middleware(self) -> Middleware:
        @web.middleware
        async def trace(request: web.Request, handler: Handler) -> web.StreamResponse:
            context, clock = request[CONTEXT], _Clock()
            span = self._tracer.start_span(
                f"{request.method} {_route_of(request)}",
                _parent_of(request) if self._trusts_callers else Context(),
                SpanKind.SERVER,
                {"http.request.method": request.method, "http.route": _route_of(request)},
                start_time=clock.ns(context.phases.started_at_s),
            )
            context.facts["trace_id"] = format_trace_id(span.get_span_context().trace_id)
            status, code = 499, None  # the caller left before there was an answer
            try:
                with use_span(span, record_exception=False, set_status_on_exception=False):
                    response = await handler(request)
                status = response.status
                return response
            except Exception as error:
                status, code = _refusal_of(error)
                raise
            finally:
                self._finish(span, request, status, code, clock)

        return trace

    def _finish(self, span: Span, request: web.Request, status: int, code: str | None, clock: _Clock) -> None:
        context = request[CONTEXT]
        span.set_attribute("http.response.status_code", status)
        span.set_attribute("b3os.request_id", context.request_id)
        if (told := code or context.facts.get("code")) is not None:  # the facts have that of an `error` event
            span.set_attribute("error.type", str(told))
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        self._add_phases(span, context.phases, clock)
        span.end()

    def _add_phases(self, span: Span, phases: Phases, clock: _Clock) -> None:
        """A span below for what was measured; an event for what was told with its duration alone."""
        below = set_span_in_context(span)
        for name, begun_s, ended_s in phases.steps:
            if begun_s is None:
                duration_ms = phases.durations_ms[name]
                span.add_event(name, {"duration_ms": round(duration_ms, 2)}, clock.ns(ended_s))
            else:
                child = self._tracer.start_span(name, below, start_time=clock.ns(begun_s))
                child.end(clock.ns(ended_s))


class _Clock:
    """From the clock of phases to Unix nanoseconds, by what both show at one moment."""

    def __init__(self) -> None:
        self._here_s, self._there_ns = time.perf_counter(), time.time_ns()

    def ns(self, moment_s: float) -> int:
        """That moment in Unix nanoseconds."""
        return self._there_ns + int((moment_s - self._here_s) * 1e9)


def _route_of(request: web.Request) -> str:
    """As it was added, so that ids are no part of it."""
    resource = request.match_info.route.resource
    return "none" if resource is None else resource.canonical


def _parent_of(request: web.Request) -> Context:
    """What the caller told; nothing where that is no valid `traceparent`, or two of them."""
    told = request.headers.getall("traceparent", ())
    if len(told) != 1:
        return Context()
    carrier = {"traceparent": told[0]}
    if states := request.headers.getall("tracestate", ()):
        carrier["tracestate"] = ",".join(states)
    return _PROPAGATOR.extract(carrier, Context())


def _refusal_of(error: Exception) -> tuple[int, str | None]:
    """Status and code that shared/web.py makes of it."""
    match error:
        case ApiError(condition=condition):
            return condition.status, condition.code
        case web.HTTPException():
            return error.status, None
        case ConnectionError() | TimeoutError():
            return 499, None
        case _:
            return INTERNAL.status, INTERNAL.code
