"""Which node serves a request, and which may take over.

Decides the order of nodes. Must not know how they are reached, nor look into a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from shared.errors import NODE_UNAVAILABLE, ApiError


@dataclass(frozen=True, slots=True)
class Node:
    """A node under the id that it verifies as its token's audience."""

    id: str
    url: str


class NodeDirectory(Protocol):
    """The nodes that may be asked now."""

    def list_nodes(self) -> Sequence[Node]:
        """All candidates, in any order."""


class StaticDirectory:
    """The nodes of the settings."""

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self._nodes = tuple(Node(node_id, url) for node_id, url in sorted(nodes.items()))

    def list_nodes(self) -> Sequence[Node]:
        """See `NodeDirectory`."""
        return self._nodes


@dataclass(frozen=True, slots=True)
class Route:
    """The chosen node first, then those that may take over."""

    nodes: tuple[Node, ...]

    @property
    def audience(self) -> list[str]:
        """Who may accept the token."""
        return [node.id for node in self.nodes]


class Router:
    """Takes nodes in turn; one fallback is enough, since a request is sent to another node once."""

    def __init__(self, directory: NodeDirectory) -> None:
        self._directory = directory
        self._turns = count()

    def pick_route(self) -> Route:
        """The route of the next request.

        Raises:
            ApiError: `NODE_UNAVAILABLE`; no node is known.
        """
        nodes = self._directory.list_nodes()
        if not nodes:
            raise ApiError(NODE_UNAVAILABLE, "no node is available", retry_after_s=1)
        first = next(self._turns) % len(nodes)
        return Route((*nodes[first:], *nodes[:first])[:2])
