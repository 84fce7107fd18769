"""The counts of an edge that are read from its log lines and from its routes."""

from __future__ import annotations

import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from edge.app import build_edge_app
from edge.breaker import FAILURES
from edge.cluster import Cluster
from edge.metrics import GROUPS, RoutingCollector, UpstreamFailures
from edge.proxy import Proxy
from edge.upstream import NodeLost, NodeTooSlow
from shared.node_hosts import PRIVATE, NodeHosts
from tests.heartbeats import heartbeat
from tests.unit.test_openapi import NoProxy, build_nobody


def test_every_route_for_programs_has_a_group() -> None:
    app = build_edge_app(cast("Proxy", NoProxy()), build_nobody())
    paths = {
        resource.canonical
        for resource in app.router.resources()
        if any(route.method != "GET" or "/v1/" in resource.canonical for route in resource)
    }
    documents = {"/v1/openapi.yaml", "/v1/openapi.json"}
    assert paths - documents == set(GROUPS)
    assert isinstance(app, web.Application)


def test_failures_of_nodes_are_told_apart_by_how_far_a_request_was() -> None:
    failures = UpstreamFailures()
    logger = logging.Logger("b3os.test")
    logger.addHandler(failures)
    logger.warning("node failed", extra={"facts": {"node": "n1", "reached": False}})
    logger.warning("node failed", extra={"facts": {"node": "n2", "reached": True}})
    logger.error("node broke off within a stream", extra={"facts": {"cause": "x"}})
    assert told_by(failures, "b3os_edge_upstream_failures_total", "kind") == {
        "not_reached": 1,
        "before_answer": 1,
        "within_answer": 0,
        "within_stream": 1,
        "token_rejected": 0,
    }


def told_by(collector: Collector, name: str, label: str) -> dict[str, float]:
    """The values of a metric by one label."""
    registry = CollectorRegistry()
    registry.register(collector)
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    return {sample.labels.get(label, ""): sample.value for sample in samples if sample.name == name}


def test_what_an_edge_sees_of_nodes_is_told_by_state_and_by_what_it_leaves_alone() -> None:
    cluster = Cluster({}, NodeHosts(PRIVATE), lambda: 0.0)
    client: Any = SimpleNamespace(taken_over=Counter())
    routing = RoutingCollector(cluster, client)
    told = [heartbeat("n1"), heartbeat("n2"), heartbeat("n3", state="draining")]
    cluster.hear(told)
    first, second, _ = cluster.list_nodes()

    def breakers() -> tuple[float, float]:
        is_open = told_by(routing, "b3os_edge_breakers_open", "")[""]
        return is_open, told_by(routing, "b3os_edge_breakers_opened_total", "")[""]

    states = told_by(routing, "b3os_edge_nodes_by_state", "state")
    assert told_by(routing, "b3os_edge_nodes", "") == {"": 3}
    assert {state: count for state, count in states.items() if count} == {"ready": 2, "draining": 1}
    assert states.keys() == {"starting", "ready", "restarting", "failed", "draining", "stopped"}
    assert breakers() == (0, 0)
    for _ in range(FAILURES):
        cluster.note_failure(first)
        cluster.note_failure(second)
    assert breakers() == (2, 2)
    cluster.note_success(second)
    assert breakers() == (1, 2)
    cluster.hear(told[1:])  # one is gone, and what was counted of it is not
    assert breakers() == (0, 2)
    assert told_by(routing, "b3os_edge_nodes_by_state", "state")["ready"] == 1


def test_requests_that_were_taken_over_are_told_by_cause() -> None:
    more = [cause.__name__ for cause in NodeLost.__subclasses__() if cause is not NodeTooSlow]
    names = (NodeLost.__name__, *more, "NotStarted", "Rejected")
    client: Any = SimpleNamespace(taken_over=Counter(dict.fromkeys(names, 2)))
    routing = RoutingCollector(Cluster({}, NodeHosts(PRIVATE), lambda: 0.0), client)
    told = told_by(routing, "b3os_edge_taken_over_total", "cause")
    assert told == dict.fromkeys(("not_reached", "lost", "not_started", "rejected"), 2)
    client.taken_over.clear()
    assert told_by(routing, "b3os_edge_taken_over_total", "cause") == dict.fromkeys(told, 0)
