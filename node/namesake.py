"""Another node under this one's id: edges would send requests now to one and now to the other.

Decides when there is one, and that the second to come does not start. What a dead process left behind is none: nobody
tells it again. Must not know how a heartbeat is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from node.peers import Ask
from shared.heartbeat import EVERY_S, Heartbeat

SURE = 3
"""Heartbeats of the other one that make it certain, and of ours alone, one after another, that make it be over."""
TOLD_EVERY = 30
"""Heartbeats between two lines of it: a minute, so that an alarm lasts as long as what it is about."""
PATIENCE_S = 1.5 * EVERY_S
LOOK_EVERY_S = 0.2
_log = logging.getLogger("b3os.node.namesake")


class IdTaken(Exception):
    """Another node has this id; the message is one sentence for an operator."""


async def claim_id(
    ask: Ask,
    node_id: str,
    url: str,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Return unless a node of this id tells from another address that it lives.

    What was told last from another address is watched until it is told anew, or too old for a node that lives. One
    that drains makes room: it is waited for. From the same address it was this node itself, before it died; if it is
    not, the port is taken. Without Redis nobody is heard.

    Raises:
        IdTaken: it lives.
    """
    first = await _hear_other(ask, node_id, url)
    until_s, is_told = clock() + PATIENCE_S, False
    while first is not None and clock() < until_s:
        await sleep(LOOK_EVERY_S)
        last = await _hear_other(ask, node_id, url)
        if last is None:
            return
        if (last.boot, last.beat) == (first.boot, first.beat):
            continue
        if last.state != "draining":
            _tell(node_id, url, last)
            raise IdTaken(
                f"another node has the id {node_id} and is at {last.url}, while this one would be at {url}: "
                "each node needs a B3OS_NODE_ID of its own"
            )
        if not is_told:
            _log.info("the node of this id drains; waiting for it", extra={"facts": {"node": node_id}})
        first, until_s, is_told = last, clock() + PATIENCE_S, True


async def _hear_other(ask: Ask, node_id: str, url: str) -> Heartbeat | None:
    heard = await ask([node_id])
    return next((each for each in heard if each.state != "stopped" and each.url != url), None)


class Namesake:
    """Whether there is one while this node lives: two that start at once both do."""

    def __init__(self, node_id: str, url: str) -> None:
        self._node_id, self._url = node_id, url
        self._heard = self._alone = 0

    def note(self, other: Heartbeat | None) -> None:
        """What another process told under this id between two heartbeats of ours, or nothing."""
        if other is None or other.state == "stopped":
            self._alone += 1
            if self._alone >= SURE:
                self._heard = 0
            return
        self._alone = 0
        self._heard += 1
        if self._heard % TOLD_EVERY == SURE:
            _tell(self._node_id, self._url, other)


def _tell(node_id: str, url: str, other: Heartbeat) -> None:
    facts = {"node": node_id, "own_url": url, "other_url": other.url}
    _log.error("another node has this id", extra={"facts": facts})
