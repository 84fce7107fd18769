"""Spans of requests: joined from caller to node, telling nothing of what was asked, and absent unless asked for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from edge.cluster import Carried, Cluster
from edge.routing import Route
from edge.settings import EdgeSection
from edge.upstream import NodeClient, Outgoing
from shared.errors import SPEND_CAP_REACHED, ApiError
from shared.node_hosts import PRIVATE, NodeHosts
from shared.otel import OtelTracing, build_sampler
from shared.serve import Site, serving
from shared.web import CONTEXT, build_app, json_response, render_anthropic
from tests.e2e.stack import DevCommand, running_dev
from tests.integration.edge.parts import finding_nobody
from tests.redis_server import free_port

ROOT = Path(__file__).parents[2]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Service:
    """A process in small: it listens, asks itself once more where it is told to, and keeps its spans."""

    def __init__(self, *, ratio: float = 1, trusts_callers: bool = True) -> None:
        self.kept = InMemorySpanExporter()
        provider = TracerProvider(build_sampler(ratio))
        provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self.tracing = OtelTracing(provider, trusts_callers=trusts_callers)
        self.port = free_port()
        self.seen: list[list[str]] = []
        self.inner = 200

    async def forward(self, request: web.Request) -> web.Response:
        """As a node does for another one's model, the caller's header included."""
        with request[CONTEXT].phases.measure("edge_auth"):
            pass
        cluster = Cluster({"n1": f"http://127.0.0.1:{self.port}"}, NodeHosts(PRIVATE), time.monotonic)
        path, route = f"/things/{request.match_info['id']}", Route(tuple(cluster.list_nodes()))
        outgoing = Outgoing("GET", path, request.headers.copy(), None, sign=lambda route: "")
        traces, section = self.tracing.client_traces(), EdgeSection.model_validate({})
        async with NodeClient.opened(section, cluster, None, traces) as client:
            with Carried() as carried:
                response = await client.send_request(route, outgoing, carried, finding_nobody())
                await response.read()
        return json_response({}, status=response.status)

    async def answer(self, request: web.Request) -> web.Response:
        """As a node does."""
        self.seen.append(request.headers.getall("traceparent", []))
        request[CONTEXT].phases.add("ttft", 12.5)
        if self.inner == 500:
            raise RuntimeError("a fault with a secret prompt in it")
        if self.inner == 402:
            raise ApiError(SPEND_CAP_REACHED, "no money for the secret prompt")
        return json_response({})

    async def ask(self, path: str = "/outer/secret-id", *parents: str) -> int:
        """The status."""
        headers = [("traceparent", parent) for parent in parents] + [("x-api-key", "b3os_sk_secret")]
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.port}") as client,
            client.get(path, headers=headers) as answer,
        ):
            await answer.read()
            return answer.status

    def spans(self) -> dict[str, ReadableSpan]:
        """By name."""
        return {span.name: span for span in self.kept.get_finished_spans()}


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async for each in running(Service()):
        yield each


async def running(service: Service) -> AsyncIterator[Service]:
    app = build_app(lambda request: render_anthropic)
    app.router.add_get("/outer/{id}", service.forward)
    app.router.add_get("/things/{id}", service.answer)
    service.tracing.attach(app)
    async with serving([Site(app, render_anthropic, "127.0.0.1", service.port)], drain_s=0):
        yield service


def trace_of(span: ReadableSpan) -> str:
    return f"{span.context.trace_id:032x}"


def id_of(span: ReadableSpan) -> int:
    return int(span.context.span_id)


async def test_one_trace_goes_from_the_caller_through_both_sides(service: Service) -> None:
    assert await service.ask("/outer/1", PARENT) == 200
    spans = service.spans()
    outer, inner, auth = spans["GET /outer/{id}"], spans["GET /things/{id}"], spans["edge_auth"]
    assert {trace_of(span) for span in spans.values()} == {TRACE}
    assert outer.parent is not None
    assert f"{outer.parent.span_id:016x}" == "b7ad6b7169203331"
    assert inner.parent is not None
    assert inner.parent.span_id == id_of(outer)
    assert service.seen == [[f"00-{TRACE}-{id_of(outer):016x}-01"]]
    assert auth.parent is not None
    assert auth.parent.span_id == id_of(outer)
    assert [(event.name, dict(event.attributes or {})) for event in inner.events] == [("ttft", {"duration_ms": 12.5})]
    assert outer.start_time is not None
    assert outer.end_time is not None
    assert auth.start_time is not None
    assert auth.end_time is not None
    assert outer.start_time <= auth.start_time <= auth.end_time <= outer.end_time


@pytest.mark.parametrize(
    "parents",
    [
        (),
        ("nonsense",),
        (PARENT.replace("00-", "ff-", 1),),
        (PARENT.replace(TRACE, "0" * 32),),
        (PARENT.replace("b7ad6b7169203331", "0" * 16),),
        (PARENT + "\t; DROP",),
        (PARENT, PARENT),
    ],
)
async def test_an_invalid_traceparent_is_as_none(service: Service, parents: tuple[str, ...]) -> None:
    assert await service.ask("/outer/1", *parents) == 200
    outer = service.spans()["GET /outer/{id}"]
    assert outer.parent is None
    assert trace_of(outer) != TRACE
    [[told]] = service.seen
    assert told.split("-")[1] == trace_of(outer)


async def test_a_stranger_s_trace_is_not_joined() -> None:
    async for service in running(Service(trusts_callers=False)):
        assert await service.ask("/outer/1", PARENT) == 200
        spans = service.spans()
        outer, inner = spans["GET /outer/{id}"], spans["GET /things/{id}"]
        assert outer.parent is None
        assert trace_of(outer) != TRACE
        [[told]] = service.seen
        assert told.split("-")[1:3] == [trace_of(outer), f"{id_of(outer):016x}"]
        assert trace_of(inner) != TRACE


@pytest.mark.parametrize(("inner", "code", "is_error"), [(402, "spend_cap_reached", False), (500, "internal", True)])
async def test_a_span_tells_how_it_ended_and_no_secret(
    service: Service, inner: int, code: str, is_error: bool
) -> None:
    service.inner = inner
    assert await service.ask("/outer/secret-id", PARENT) == inner
    span = service.spans()["GET /things/{id}"]
    attributes = dict(span.attributes or {})
    request_id = attributes.pop("b3os.request_id")
    assert str(request_id).startswith("req_")
    assert attributes == {
        "http.request.method": "GET",
        "http.route": "/things/{id}",
        "http.response.status_code": inner,
        "error.type": code,
    }
    assert (span.status.status_code == StatusCode.ERROR) is is_error
    assert "secret" not in "".join(each.to_json() for each in service.kept.get_finished_spans())


async def test_a_path_that_is_no_route_is_no_name(service: Service) -> None:
    assert await service.ask("/made/up") == 404
    assert set(service.spans()) == {"GET none"}


@pytest.mark.parametrize(
    ("trusts_callers", "flag", "ratio", "is_kept"),
    [
        (True, "00", 1.0, False),
        (True, "01", 0.0, True),
        (False, "00", 1.0, True),
        (False, "01", 0.0, False),
    ],
)
async def test_only_a_trusted_caller_decides_whether_it_is_traced(
    trusts_callers: bool, flag: str, ratio: float, is_kept: bool
) -> None:
    async for service in running(Service(ratio=ratio, trusts_callers=trusts_callers)):
        assert await service.ask("/things/1", f"{PARENT[:-2]}{flag}") == 200
        assert bool(service.spans()) is is_kept


async def test_no_stranger_chooses_an_id_that_is_kept() -> None:
    first = PARENT.replace(TRACE, TRACE[:16] + f"{1:016x}")  # the lower half decides
    async for service in running(Service(ratio=1e-9, trusts_callers=False)):
        assert await service.ask("/things/1", first) == 200
        assert service.spans() == {}


@pytest.mark.parametrize("module", ["edge.__main__", "node.__main__"])
def test_without_traces_nothing_of_it_is_loaded(module: str) -> None:
    ours = {"shared.otel", "opentelemetry.exporter.otlp", "requests"}  # redis-py loads parts of the SDK by itself
    text = f"import sys, {module}; sys.exit(len({ours} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=False).returncode == 0


def test_without_the_packages_the_setting_is_refused_in_one_sentence() -> None:
    text = (
        "import asyncio, sys; sys.modules['opentelemetry'] = None\n"
        "from shared.settings import SettingsError\n"
        "from shared.tracing import TracingSection, open_tracing\n"
        "async def run():\n"
        "    section = TracingSection(otlp_endpoint='http://127.0.0.1:1/v1/traces', sample_ratio=1)\n"
        "    async with open_tracing(section, 'x', trusts_callers=False): pass\n"
        "try: asyncio.run(run())\n"
        "except SettingsError as error: sys.exit(str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pip install 'b3os[otel]'" in done.stderr


class Collector:
    """Takes spans as OTLP over HTTP."""

    def __init__(self) -> None:
        self.port = free_port()
        self.spans: list[tuple[str, Any]] = []

    async def take(self, request: web.Request) -> web.Response:
        """Keep them, with the service that sent them."""
        batch = ExportTraceServiceRequest.FromString(await request.read())
        for resource in batch.resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(names["service.name"], span) for span in scope.spans]
        return web.Response()


async def run_traced(collector: Collector, folder: Path, **settings: str) -> str:
    """A message through a whole service that sends its spans; returns the answer's request id."""
    settings["B3OS_TRACING_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.port}/v1/traces"
    held = running_dev(DevCommand(folder / "home"), settings=settings)
    stack = await asyncio.to_thread(held.__enter__)
    try:
        body = {
            "model": stack.model,
            "max_tokens": 5,
            "stream": True,
            "messages": [{"role": "user", "content": "secret prompt"}],
        }
        headers = {"x-api-key": stack.api_key, "traceparent": PARENT}
        async with (
            aiohttp.ClientSession(headers=headers) as client,
            client.post(f"{stack.base_url}/v1/messages", json=body) as answer,
        ):
            assert answer.status == 200
            await answer.read()
            return answer.headers["x-request-id"]
    finally:
        await asyncio.to_thread(held.__exit__, None, None, None)


@pytest.mark.parametrize("trusts_callers", [False, True])
async def test_a_service_exports_a_message_as_one_trace_and_its_logs_name_it(
    tmp_path: Path, *, trusts_callers: bool
) -> None:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    async with serving([Site(app, render_anthropic, "127.0.0.1", collector.port)], drain_s=0):
        request_id = await run_traced(collector, tmp_path, B3OS_TRACING_TRUSTS_CALLERS=str(trusts_callers))
    by_name = {(service, span.name): span for service, span in collector.spans}
    edge = by_name["b3os-edge", "POST /v1/infer/v1/messages"]
    node = by_name["b3os-node", "POST /v1/infer/v1/messages"]
    assert (edge.trace_id.hex() == TRACE) is trusts_callers
    assert edge.parent_span_id.hex() == ("b7ad6b7169203331" if trusts_callers else "")
    assert (node.trace_id, node.parent_span_id) == (edge.trace_id, edge.span_id)
    assert {"parse", "admission", "render"} <= {name for service, name in by_name if service == "b3os-node"}
    assert "secret prompt" not in str(collector.spans)
    for side in ("edge", "node"):
        lines = [json.loads(line) for line in (tmp_path / "home" / "logs" / f"{side}.log").read_text().splitlines()]
        told = [line for line in lines if line.get("trace_id") == edge.trace_id.hex()]
        assert [(line["message"], line["request_id"]) for line in told] == [("request", request_id)]
