"""The other nodes, as this one last heard of them.

Decides which of them may be asked for a model, and when what was heard is too old to say. Must not know how they are
heard or asked.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from shared.heartbeat import LIFETIME_MS, Heartbeat, ModelCard
from shared.node_hosts import NodeHosts

Ask = Callable[[Collection[str]], Awaitable[Sequence[Heartbeat]]]


async def ask_nobody(ids: Collection[str]) -> Sequence[Heartbeat]:
    """For a node that hears by chance alone."""
    del ids
    return ()


class Peers:
    """All but this node, while they are where nodes may be."""

    def __init__(self, node_id: str, hosts: NodeHosts, clock: Callable[[], float], ask: Ask = ask_nobody) -> None:
        """`ask` hears of some nodes now; nothing if nobody tells."""
        self._node_id, self._hosts, self._clock, self._ask = node_id, hosts, clock, ask
        self._heard: Sequence[Heartbeat] = ()
        self._heard_s = float("-inf")

    def hear(self, heartbeats: Iterable[Heartbeat]) -> None:
        """Take what all nodes told."""
        self._heard = self._believed(heartbeats)
        self._heard_s = self._clock()

    def ids(self) -> list[str]:
        """Who was heard last."""
        return [each.id for each in self._heard]

    async def find(self, model: str, audience: Collection[str]) -> Heartbeat | None:
        """A node that serves the model and takes a token for these ids, if any lives.

        Where there are many nodes all are heard too seldom for this, and these few are asked for.
        """
        others = [node_id for node_id in audience if node_id != self._node_id]
        if not others:
            return None
        is_new = self._clock() - self._heard_s <= LIFETIME_MS / 1000
        heard = self._heard if is_new else self._believed(await self._ask(others))
        able = [each for each in heard if each.id in others and each.serves(model)]
        ready = [each for each in able if each.state == "ready"]
        return random.choice(ready or able) if able else None  # noqa: S311 - a share of work is no secret

    def cards(self) -> Sequence[tuple[str, ModelCard]]:
        """What they serve, with who does. What was heard last is listed for as long as nothing else is heard."""
        leaving = ("draining", "stopped")
        return [(each.id, card) for each in self._heard if each.state not in leaving for card in each.models]

    def _believed(self, heartbeats: Iterable[Heartbeat]) -> Sequence[Heartbeat]:
        return [each for each in heartbeats if each.id != self._node_id and self._hosts.allows(each.url)]
