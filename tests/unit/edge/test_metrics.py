"""The counts of an edge that are read from its log lines and from its routes."""

from __future__ import annotations

import logging
from typing import cast

from aiohttp import web
from prometheus_client import CollectorRegistry

from edge.app import build_edge_app
from edge.metrics import GROUPS, UpstreamFailures
from edge.proxy import Proxy
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
    registry = CollectorRegistry()
    registry.register(failures)
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    counts = {sample.labels["kind"]: sample.value for sample in samples if sample.name.endswith("_total")}
    assert counts == {
        "not_reached": 1,
        "before_answer": 1,
        "within_answer": 0,
        "within_stream": 1,
        "token_rejected": 0,
    }
