"""Limits on a real Redis: subjects, a clock that tests move, and a Redis that tests may kill."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis

from node.limits import names
from node.limits.bill import Ending, build_settlement
from node.limits.limiter import Admitted, Hold, Limits, Progress, Settlement, SpendCap, Subject
from node.limits.prices import Price
from node.limits.redis_limiter import RedisLimiter
from node.limits.store import Store
from shared.ids import new_record_id, new_request_id
from shared.redis import connect_redis
from shared.request_log import RequestLog
from shared.usage import UsageReader
from tests.redis_server import as_user, prepare, url_of, wait_until_up

MODEL = "b3os/test"
PRICE = Price(3, 15)
NOON_MS = 1_796_040_000_000
"""2026-11-30 12:00 UTC, the begin of a slot; a last day of a month."""
EVERYTHING = Progress(has_prefilled=True, input_tokens=100, output_tokens=20, cached_tokens=64)


@dataclass(slots=True)
class Clock:
    """Takes the place of Redis's."""

    now_ms: int = NOON_MS

    def __call__(self) -> int:
        return self.now_ms

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += round(seconds * 1000)


@dataclass(slots=True)
class World:
    """Two nodes on one Redis, and an organization that no other test has. Each client is another user's.

    Attributes:
        redis: for what a test looks at and breaks.
    """

    redis: Redis
    node_redis: Redis
    edge_redis: Redis
    clock: Clock = field(default_factory=Clock)
    org: str = field(default_factory=lambda: new_record_id("org"))
    stores: list[Store] = field(default_factory=list)
    _turn: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def at(cls, url: str, **options: Any) -> World:
        """On this server, with clients of its own."""
        operator, node, edge = (connect_redis(as_user(user, url)) for user in ("operator", "node", "edge"))
        return cls(operator, node, edge, **options)

    async def aclose(self) -> None:
        """Nothing of it is left."""
        for store in self.stores:
            await store.aclose()
        for redis in (self.redis, self.node_redis, self.edge_redis):
            await redis.aclose()

    def limiter(self) -> RedisLimiter:
        """One of the two, in turn."""
        while len(self.stores) < 2:
            self.stores.append(Store(self.node_redis))
        return RedisLimiter(self.stores[next(self._turn) % 2], clock_ms=self.clock)

    def subject(
        self, limits: Limits | None = None, cap: SpendCap | None = None, *, key: str = "key_1", model: str = MODEL
    ) -> Subject:
        """A new request."""
        request_id = new_request_id(self.clock.now_ms)
        return Subject(request_id, self.org, "main", key, model, "n1", PRICE, limits or Limits(), cap)

    async def meter(self, name: names.MeterName) -> dict[int, int]:
        """Sums by slot."""
        stored = await self.hash(names.meter_key(self.subject(), name))
        return {int(slot): int(total) for slot, total in stored.items() if int(total)}

    async def hash(self, name: str) -> dict[str, str]:
        return cast("dict[str, str]", await self.redis.hgetall(name))

    async def ledger(self, month: str = "2026-11") -> list[dict[str, str]]:
        """Its entries, in order."""
        entries = await self.redis.xrange(names.ledger_key(self.org, month))
        return [fields for _, fields in cast("list[tuple[str, dict[str, str]]]", entries)]

    async def spent(self, period: str = "2026-11", key_id: str = "key_1") -> tuple[int, int]:
        """Settled and held."""
        spent = await UsageReader(self.edge_redis).fetch_spent(self.org, key_id, period)
        return spent.settled, spent.held

    async def running(self) -> int:
        """Leases, ended ones included."""
        return int(await self.redis.zcard(names.leases_key(self.org)))

    @property
    def log(self) -> RequestLog:
        return RequestLog(self.edge_redis)


def hold_of(admission: object) -> Hold:
    """Of what must have been admitted."""
    assert isinstance(admission, Admitted), admission
    return admission.hold


def bill(hold: Hold, progress: Progress = EVERYTHING, *, status: int = 200, image_bytes: int = 0) -> Settlement:
    """A finished request's."""
    return build_settlement(hold, progress, Ending("finished", status, stop_reason="end_turn"), image_bytes)


@contextlib.asynccontextmanager
async def world_on(url: str, **options: Any) -> AsyncIterator[World]:
    """While the body runs."""
    world = World.at(url, **options)
    try:
        yield world
    finally:
        await world.aclose()


class MortalRedis:
    """A Redis of a test's own, as `b3os dev` configures it: killed, frozen and started again at will."""

    def __init__(self, folder: Path, port: int) -> None:
        self._command, self.url = prepare(folder, port), url_of("node", port)
        self._log = folder / "redis.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """With what it had on disk."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until_up(as_user("operator", self.url), self._process)

    def kill(self) -> None:
        """Without a last word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """It answers nothing, and takes connections all the same."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)
