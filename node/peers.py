"""The other nodes, as this one last heard of them.

Decides which of them may be asked for a model. Must not know how they are heard or asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence

from shared.heartbeat import LIFETIME_MS, Heartbeat, ModelCard
from shared.node_hosts import NodeHosts


class Peers:
    """All but this node, while they are where nodes may be."""

    def __init__(self, node_id: str, hosts: NodeHosts, clock: Callable[[], float]) -> None:
        self._node_id, self._hosts, self._clock = node_id, hosts, clock
        self._heard: list[Heartbeat] = []
        self._heard_s = float("-inf")

    def hear(self, heartbeats: Iterable[Heartbeat]) -> None:
        """Take what all nodes told."""
        self._heard = [each for each in heartbeats if each.id != self._node_id and self._hosts.allows(each.url)]
        self._heard_s = self._clock()

    def ids(self) -> list[str]:
        """Who was heard last."""
        return [each.id for each in self._heard]

    def find(self, model: str, audience: Collection[str]) -> Heartbeat | None:
        """A node that serves the model and takes a token for these ids; none if all was heard too long ago."""
        if self._clock() - self._heard_s > LIFETIME_MS / 1000:
            return None
        able = [each for each in self._heard if each.id in audience and each.serves(model)]
        ready = [each for each in able if each.state == "ready"]
        return random.choice(ready or able) if able else None  # noqa: S311 - a share of work is no secret

    def cards(self) -> Sequence[tuple[str, ModelCard]]:
        """What they serve, with who does. What was heard last is listed for as long as nothing else is heard."""
        leaving = ("draining", "stopped")
        return [(each.id, card) for each in self._heard if each.state not in leaving for card in each.models]
