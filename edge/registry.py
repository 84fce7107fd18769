"""Reads what nodes tell of themselves, again and again.

Decides how often, and when a heartbeat that is missing means something. Must not know what becomes of it: `cluster`.
While Redis is away the nodes that were known last stay: they most likely run, and serving matters more.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Mapping

from redis.asyncio import Redis

from edge.cluster import Cluster
from shared.heartbeat import LIFETIME_MS, HeartbeatParser, read_all
from shared.redis import FAILURES, cause_of
from shared.tasks import end_task, in_background

EVERY_S = 1.0
GATHER_S = 0.2
"""Who would be turned away otherwise waits so long for others like it: to read a thousand nodes takes 6 ms."""
_ANSWER_S = 1.0
_log = logging.getLogger("b3os.edge.registry")


class Registry:
    """One edge's eye on all nodes.

    Attributes:
        failures: reads that failed since one succeeded.
    """

    def __init__(self, redis: Redis, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._cluster = cluster
        self._clock = clock
        self._parser = HeartbeatParser()
        self._answers_since_s: float | None = None
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._out_of_turn: set[asyncio.Task[None]] = set()
        self.failures = 0

    @contextlib.asynccontextmanager
    async def following(self, every_s: float = EVERY_S) -> AsyncIterator[None]:
        """Read now, and while the body runs."""
        await self.look()
        async with in_background(self._look_forever(every_s)):
            try:
                yield
            finally:
                for task in list(self._out_of_turn):
                    await end_task(task)

    async def look_again(self) -> None:
        """Know what Redis knows now. All who ask within a moment, or while another reads, share the next reading.

        It is none of theirs, so whoever leaves ends it for nobody. While Redis is known to be away nobody waits.
        """
        if self._answers_since_s is None:
            return
        if self._next is None:
            self._next = asyncio.create_task(self._read_soon(), context=contextvars.Context())
            self._out_of_turn.add(self._next)
            self._next.add_done_callback(self._out_of_turn.discard)
        await asyncio.shield(self._next)

    async def _read_soon(self) -> None:
        await asyncio.sleep(GATHER_S)
        async with self._turn:
            self._next = None  # whoever asks from here on may have heard of what this one will not
            if self._answers_since_s is not None:
                await self._read()

    async def look(self) -> bool:
        """Read once; whether Redis told."""
        async with self._turn:
            return await self._read()

    async def _read(self) -> bool:
        try:
            async with asyncio.timeout(_ANSWER_S):
                texts = await read_all(self._redis, self._cluster.known_ids())
            self._take(texts)
        except FAILURES as error:
            self._note_failure(error)
            return False
        except Exception:
            _log.exception("the registry can't be read")
            return False
        return True

    def _take(self, texts: Mapping[str, str]) -> None:
        heartbeats, now_s = self._parser.parse(texts), self._clock()
        if self._answers_since_s is None:
            self._answers_since_s = now_s
            if self.failures:
                _log.info("registry is back", extra={"facts": {"nodes": len(heartbeats)}})
        self.failures = 0
        # What Redis forgot while it was away, its nodes tell again within this time.
        self._cluster.hear(heartbeats, is_whole=now_s - self._answers_since_s >= LIFETIME_MS / 1000)

    def _note_failure(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            _log.warning("registry is away", extra={"facts": {"cause": cause_of(error)}})
        self._answers_since_s = None
        self._cluster.is_fresh = False

    async def _look_forever(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self.look()
