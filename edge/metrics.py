"""What an edge counts, as Prometheus reads it.

Decides names and labels, and which routes are one group. Every label has a fixed set of values, so that no caller can
make more of them: organizations, keys and paths are no labels. docs/metrics.md has a row for each name.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter as Tally
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, get_args

from aiohttp import web
from prometheus_client import Counter, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from edge.cluster import Cluster
from edge.identity import IdentityParts
from edge.proxy import Proxy
from edge.upstream import REJECTED, NodeClient, NodeLost, NodeNotReached
from shared.errors import FORBIDDEN, NODE_UNAVAILABLE, RATE_LIMITED, UNAUTHORIZED
from shared.heartbeat import NodeState
from shared.http_meter import HttpMeter
from shared.observing import observed
from shared.redis_durability import Durability
from shared.tls import CertificateCollector, ServerCertificate
from shared.web import CONTEXT

_MESSAGES = "/v1/infer/v1/messages"
GROUPS = {
    _MESSAGES: "messages",
    "/v1/infer/messages": "messages",
    f"{_MESSAGES}/count_tokens": "count_tokens",
    "/v1/infer": "models",
    "/v1/infer/models": "models",
    "/v1/infer/models/{id}": "models",
    "/v1/infer/v1/models": "models",
    "/v1/infer/v1/models/{id}": "models",
    "/v1/keys": "keys",
    "/v1/keys/{id}": "keys",
    "/v1/requests": "records",
    "/v1/requests/{id}": "records",
    "/v1/usage": "records",
    "/v1/auth/login": "auth",
    "/v1/auth/logout": "auth",
    "/v1/auth/session": "auth",
    "/v1/auth/organization": "auth",
    "/v1/auth/password": "auth",
    "/v1/auth/device": "device",
    "/v1/auth/device/code": "device",
    "/v1/auth/device/token": "device",
    "/v1/auth/device/decision": "device",
}
_AUTH = ("accepted", *(each.code for each in (UNAUTHORIZED, FORBIDDEN, RATE_LIMITED, NODE_UNAVAILABLE)))
_TAKEN_OVER = {
    NodeNotReached.__name__: "not_reached",
    NodeLost.__name__: "lost",
    "NotStarted": "not_started",
    "Rejected": "rejected",
}
_ENDS = {"node": "node", "client": "client", "stalled client": "stalled_client", "edge": "edge"}


class Answers(Collector):
    """How the answers of messages ended, as the relay noted it."""

    def __init__(self) -> None:
        self._ends = Counter(
            "b3os_edge_answers", "Answers to messages by who ended them.", ["ended_by"], registry=None
        )
        for name in ("answer", *_ENDS.values()):
            self._ends.labels(name)

    def note(self, group: str, request: web.Request, status: int) -> None:
        """One has ended."""
        if group != "messages":
            return
        noted = str(request[CONTEXT].facts.get("ended_by")) if CONTEXT in request else ""
        self._ends.labels(_ENDS.get(noted, "client" if status == 499 else "answer")).inc()

    def collect(self) -> Iterator[Metric]:
        """The counts of this moment."""
        yield from self._ends.collect()


class UpstreamFailures(logging.Handler, Collector):
    """Nodes that failed, by kind: read from the log lines that tell of it, as a handler of the logger `b3os`."""

    _KINDS: ClassVar[Mapping[str, str]] = {
        "node broke off": "within_answer",
        "node broke off within a stream": "within_stream",
        REJECTED: "token_rejected",
    }

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._failures = Counter(
            "b3os_edge_upstream_failures",
            "Failures of nodes by how far a request had come.",
            ["kind"],
            registry=None,
        )
        for kind in ("not_reached", "before_answer", *self._KINDS.values()):
            self._failures.labels(kind)

    def emit(self, record: logging.LogRecord) -> None:
        """Count it, if it tells of a node."""
        kind = self._KINDS.get(record.msg)
        if record.msg == "node failed":
            facts: dict[str, Any] = getattr(record, "facts", {})
            kind = "before_answer" if facts.get("reached") else "not_reached"
        if kind is not None:
            self._failures.labels(kind).inc()

    def collect(self) -> Iterator[Metric]:
        """The counts of this moment."""
        yield from self._failures.collect()


class RoutingCollector(Collector):
    """The nodes as this edge sees them, and what it did where one failed."""

    def __init__(self, cluster: Cluster, client: NodeClient) -> None:
        self._cluster, self._client = cluster, client

    def collect(self) -> Iterator[Metric]:
        """The state of this moment."""
        nodes = self._cluster.list_nodes()
        yield _gauge("b3os_edge_nodes", "Nodes that may be asked.", len(nodes))
        tally = Tally(node.state for node in nodes)
        states = GaugeMetricFamily("b3os_edge_nodes_by_state", "These by what they told last.", labels=["state"])
        for state in get_args(NodeState):
            states.add_metric([state], tally[state])
        yield states
        is_open = sum(node.breaker.is_open for node in nodes)
        yield _gauge("b3os_edge_breakers_open", "Of these, those that are left alone or tried.", is_open)
        opened = self._cluster.breakers_opened
        yield CounterMetricFamily("b3os_edge_breakers_opened", "How often it came to that.", value=opened)
        causes = "Requests that another node than the chosen one answered."
        taken_over = CounterMetricFamily("b3os_edge_taken_over", causes, labels=["cause"])
        for why, cause in _TAKEN_OVER.items():
            taken_over.add_metric([cause], self._client.taken_over[why])
        yield taken_over


class EdgeCollector(Collector):
    """What the parts of an edge hold and have counted."""

    def __init__(self, identity: IdentityParts, proxy: Proxy, durability: Durability) -> None:
        self._identity, self._proxy, self._durability = identity, proxy, durability

    def collect(self) -> Iterator[Metric]:
        """The state of this moment."""
        yield from self._collect_auth()
        yield _gauge("b3os_edge_bodies_held_bytes", "Request bodies that are held.", self._proxy.held_bytes)
        yield _gauge("b3os_edge_bodies_limit_bytes", "How many bytes may be.", self._proxy.most_held_bytes)
        is_following = self._identity.invalidations.is_connected
        yield _gauge("b3os_edge_invalidations_connected", "Whether revocations are heard.", is_following)
        risks = len(self._durability.risks)
        yield _gauge("b3os_redis_risks", "Settings of Redis with which it may lose what it acknowledged.", risks)

    def _collect_auth(self) -> Iterator[Metric]:
        outcomes = self._identity.authenticator.outcomes
        auth = CounterMetricFamily("b3os_edge_auth", "Callers by what became of them.", labels=["outcome"])
        for outcome in _AUTH:
            auth.add_metric([outcome], outcomes[outcome])
        yield auth
        lookups = CounterMetricFamily(
            "b3os_edge_lookups", "Keys and sessions that Redis was asked for.", labels=["cache", "outcome"]
        )
        entries = GaugeMetricFamily("b3os_edge_cache_entries", "What is remembered.", labels=["cache"])
        for name, cache in (("keys", self._identity.key_cache), ("sessions", self._identity.session_cache)):
            lookups.add_metric([name, "answered"], cache.reads - cache.failures)
            lookups.add_metric([name, "unavailable"], cache.failures)
            entries.add_metric([name], len(cache))
        yield lookups
        yield entries


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


@contextlib.asynccontextmanager
async def observing_edge(
    app: web.Application,
    identity: IdentityParts,
    proxy: Proxy,
    cluster: Cluster,
    client: NodeClient,
    durability: Durability,
    certificates: Sequence[ServerCertificate] = (),
) -> AsyncIterator[list[Collector]]:
    """Count what `app` answers while the body runs; what is yielded is for the operator port."""
    answers, failures = Answers(), UpstreamFailures()
    requests = HttpMeter(GROUPS, on_end=answers.note)
    requests.attach(app)
    async with observed([failures]) as collectors:
        edge, routing = EdgeCollector(identity, proxy, durability), RoutingCollector(cluster, client)
        yield [*collectors, requests, answers, failures, edge, routing, CertificateCollector(certificates)]
