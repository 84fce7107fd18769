"""Hears in Redis what the other nodes tell.

Decides when: every two seconds in a small cluster, and the less often the more nodes there are, so that what all of
them hear together grows as they do and not with their square. Must not know what is done with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from redis.asyncio import Redis

from node.peers import Peers
from shared.heartbeat import EVERY_S, Heartbeat, HeartbeatParser, hear_all, read_nodes
from shared.redis import FAILURES, cause_of
from shared.tasks import in_background

APART_S = 0.03
"""How far apart the nodes of a large cluster hear: with 1000 each does every 30 s."""
_ANSWER_S = 1.0
_log = logging.getLogger("b3os.node.hearing")


class Hearing:
    """One node's.

    Attributes:
        missed: how often nothing was heard since something was.
    """

    def __init__(self, redis: Redis, peers: Peers, spread: Callable[[], float] = random.random) -> None:
        """`spread` gives numbers from 0 to 1: nodes that start together don't hear together for long."""
        self._redis, self._peers, self._spread = redis, peers, spread
        self._parser = HeartbeatParser()
        self._nodes = 0
        self.missed = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """From now on while the body runs."""
        async with in_background(self._listen_forever()):
            yield

    async def listen(self) -> bool:
        """Hear of all nodes once; whether Redis told."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                texts = await hear_all(self._redis)
        except FAILURES as error:
            self.missed += 1
            if self.missed == 1:
                _log.warning("the registry tells nothing", extra={"facts": {"cause": cause_of(error)}})
            return False
        self.missed, self._nodes = 0, len(texts)
        self._peers.hear(self._parser.parse(texts))
        return True

    def pause_s(self) -> float:
        """Until the next time."""
        return max(EVERY_S, APART_S * self._nodes) * (0.75 + self._spread() / 2)

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self.listen()
            except Exception:
                _log.exception("the other nodes can't be heard")
            await asyncio.sleep(self.pause_s())


async def ask_registry(redis: Redis, ids: Collection[str]) -> Sequence[Heartbeat]:
    """What these tell now; nothing if Redis is away."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return HeartbeatParser().parse(await read_nodes(redis, ids))
    except FAILURES:
        return ()
