"""What a node counts, as Prometheus reads it.

Decides names and labels. Every label has a fixed set of values, so that no caller can make more of them:
organizations, keys and models are no labels. docs/metrics.md has a row for each name.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import get_args

from aiohttp import web
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from node.engine.port import EngineState
from node.engine.supervisor import Supervisor
from node.forward import Forwarder
from node.images.intake import ImageIntake
from node.images.verdict import Verdict
from node.limits.counted import LimitCounts
from shared.http_meter import HttpMeter
from shared.observing import observed
from shared.tls import CertificateCollector, ServerCertificate

_MESSAGES = "/v1/infer/v1/messages"
GROUPS = {
    _MESSAGES: "messages",
    f"{_MESSAGES}/count_tokens": "count_tokens",
    "/v1/infer/models": "models",
    "/v1/infer/models/{id}": "models",
    "/v1/infer/v1/models": "models",
    "/v1/infer/v1/models/{id}": "models",
}


class ImageCollector(Collector):
    """Fetches by what the guard decided, and the pixels that are held."""

    def __init__(self, images: ImageIntake) -> None:
        self._images = images

    def collect(self) -> Iterator[Metric]:
        """The counts of this moment."""
        counts = self._images.guard.counts
        fetches = CounterMetricFamily("b3os_egress_fetches", "Image URLs by what became of them.", labels=["verdict"])
        for verdict in Verdict:
            fetches.add_metric([verdict.value], counts.by_verdict[verdict])
        yield fetches
        yield CounterMetricFamily(
            "b3os_egress_received_bytes", "Bytes that image hosts sent, wanted or not.", value=counts.received_bytes
        )
        yield GaugeMetricFamily(
            "b3os_images_held_bytes", "Pixels of requests on their way to a prompt.", value=self._images.held_bytes
        )


class EngineCollector(Collector):
    """The engine's state, and how busy it is if it tells."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """The state of this moment."""
        now = self._supervisor.state
        states = GaugeMetricFamily("b3os_engine_state", "1 for the state that it is in.", labels=["state"])
        for state in get_args(EngineState):
            states.add_metric([state], state == now)
        yield states
        held, load = self._supervisor.running(), self._supervisor.load()
        yield GaugeMetricFamily("b3os_engine_requests", "Requests that the engine holds.", value=held)
        yield GaugeMetricFamily("b3os_engine_running", "Requests that get tokens.", value=load.running)
        yield GaugeMetricFamily("b3os_engine_waiting", "Requests in the engine's queue.", value=load.waiting)
        usage = GaugeMetricFamily("b3os_engine_kv_cache_usage", "Part of the cache that is taken.")
        if load.cache_usage is not None:
            usage.add_metric([], load.cache_usage)
        yield usage
        starts = "Starts of the engine after the first."
        yield CounterMetricFamily("b3os_engine_restarts", starts, value=self._supervisor.restarts)


class ForwardCollector(Collector):
    """What was another node's."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    def collect(self) -> Iterator[Metric]:
        """The count of this moment."""
        forwarded = self._forwarder.forwarded
        yield CounterMetricFamily("b3os_node_forwarded", "Requests that were passed on.", value=forwarded)


@contextlib.asynccontextmanager
async def observing_node(
    app: web.Application,
    images: ImageIntake,
    supervisor: Supervisor,
    forwarder: Forwarder,
    counts: LimitCounts,
    certificates: Sequence[ServerCertificate] = (),
) -> AsyncIterator[list[Collector]]:
    """Count what `app` answers while the body runs; what is yielded is for the operator port."""
    requests = HttpMeter(GROUPS)
    requests.attach(app)
    async with observed() as collectors:
        parts = ImageCollector(images), EngineCollector(supervisor), ForwardCollector(forwarder)
        yield [*collectors, requests, counts, *parts, CertificateCollector(certificates)]
