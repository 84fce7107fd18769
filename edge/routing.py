"""Which node serves a request, and which may take over.

Decides the order of nodes, from what a request belongs to and how busy they are. Must not know how they are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import count
from typing import Protocol

from edge.affinity import Affinity, read_affinity
from edge.cluster import Cluster, Node

ROOM, SPARE = 1.25, 2
"""A node is passed over that has this many times what each has, this request included, and so many requests more.

Without the spare ones a conversation moves whenever a few requests come at once, and leaves its cache behind.
"""
MOST_TRIED = 3
MOST_AUDIENCE = 16
# Fibonacci hashing: Python's own hash of a pair is as quick, and puts a third of all keys on one node of four.
_ODD, _MASK = 0x9E3779B97F4A7C15, (1 << 60) - 1


class NodeDirectory(Protocol):
    """The nodes that may be asked now.

    Attributes:
        is_fresh: whether that was heard just now.
    """

    is_fresh: bool

    def list_nodes(self) -> Sequence[Node]:
        """All of them, in any order."""


@dataclass(frozen=True, slots=True)
class Route:
    """The chosen node first, then those that may take over; none where none is known.

    Attributes:
        others: nodes to which one of these may pass the request on: what its model is was not seen.
    """

    nodes: tuple[Node, ...]
    others: tuple[Node, ...] = ()

    @property
    def audience(self) -> list[str]:
        """Who may accept the token."""
        return [node.id for node in (*self.nodes, *self.others)]


IsSpent = Callable[[Node], bool]


def nobody_is(node: Node) -> bool:
    """Of a request that has asked nobody."""
    del node
    return False


def _without(nodes: Sequence[Node], is_spent: IsSpent) -> Sequence[Node]:
    return nodes if is_spent is nobody_is else [node for node in nodes if not is_spent(node)]


class Router:
    """Finds nodes in a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turns = count()

    def pick_route(self, org: str = "", body: bytes | None = None, is_spent: IsSpent = nobody_is) -> Route:
        """The route of the next request, as far as is known. A body is looked at only where there is a choice.

        Args:
            is_spent: nodes that have been asked already.
        """
        candidates = _without(self._cluster.candidates(None), is_spent)
        if body is None:
            # As good as any: a list is the same everywhere.
            return Route(order_nodes(candidates, next(self._turns) * _ODD & _MASK))
        if self._cluster.there <= 1:
            return Route(tuple(candidates))
        return self._route_of(read_affinity(org, body), is_spent)

    def _route_of(self, affinity: Affinity, is_spent: IsSpent) -> Route:
        cluster = self._cluster
        model = next((name for name in affinity.models if name in cluster.models), None)
        nodes = order_nodes(_without(cluster.candidates(model), is_spent), affinity.key)
        if len(nodes) < MOST_TRIED:
            spare = [node for node in _without(cluster.last_resorts(model), is_spent) if node not in nodes]
            nodes = (*nodes, *spare[: MOST_TRIED - len(nodes)])
        if model is not None and affinity.models[0] == model and len(affinity.models) == 1:
            return Route(nodes)
        return Route(nodes, tuple(cluster.one_of_each_model(nodes)[: MOST_AUDIENCE - len(nodes)]))


def order_nodes(candidates: Sequence[Node], key: int, room: float = ROOM, spare: float = SPARE) -> tuple[Node, ...]:
    """The best of them by rendezvous hashing, without those that have too much to do already.

    Each key has an order of its own over all nodes, so what one node loses or gains moves no other's keys. As in
    consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2018), the bound counts this request too.
    """
    if len(candidates) <= 1:
        return tuple(candidates)
    bound = room * (sum([node.load for node in candidates]) + 1) / len(candidates) + spare
    scores = {((key ^ node.seed) * _ODD) & _MASK: node for node in candidates if node.load < bound}
    found: list[Node] = []
    while scores and len(found) < MOST_TRIED:
        found.append(scores.pop(max(scores)))
    if len(found) < min(MOST_TRIED, len(candidates)):
        busy = [node for node in candidates if node not in found]
        found += nsmallest(MOST_TRIED - len(found), busy, key=lambda node: node.load)
    return tuple(found)
