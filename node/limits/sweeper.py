"""Bills for requests whose node died: any node writes them, one at a time.

Decides when a request counts as abandoned. One sweeper at a time saves work, no more: what keeps a bill single is the
`done` marker, and a bill of a sweeper gives way to one of a node that was alive after all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from redis.asyncio import Redis

from node.limits import names
from node.limits.bill import build_abandoned
from node.limits.facts import Unreadable, decode_subject
from node.limits.limiter import Amended, Hold, Limiter, Progress, Settled, Settlement
from node.limits.redis_limiter import LEASE_MS
from node.limits.store import Store, load_script
from shared.tasks import in_background

SWEEP_EVERY_S = 5.0
TURN_MS = 30_000
ORGS_AT_ONCE = 500
MOST_AT_ONCE = 1000
FORGET_ORG_S = 2 * 86_400
_FORGET = load_script("forget")
_REST = load_script("rest")
_log = logging.getLogger("b3os.sweeper")


@dataclass(slots=True)
class Sweeper:
    """One node's sweeper.

    Attributes:
        quiet_s: how long Redis must have answered before anybody counts as dead. After an outage every lease has
            ended, and their owners need a while to renew them.
    """

    store: Store
    limiter: Limiter
    node_id: str
    quiet_s: float = LEASE_MS / 1000
    sweep_every_s: float = SWEEP_EVERY_S
    clock_ms: Callable[[], int] | None = None

    @contextlib.asynccontextmanager
    async def sweeping(self) -> AsyncIterator[None]:
        """Sweep in the background while the body runs."""
        async with in_background(self._sweep_forever()):
            yield

    async def _sweep_forever(self) -> None:
        answers_since_s: float | None = None
        while True:
            await asyncio.sleep(self.sweep_every_s)
            if await self.store.ask(_ping) is None:
                answers_since_s = None
                continue
            now_s = time.monotonic()
            answers_since_s = now_s if answers_since_s is None else answers_since_s
            if now_s - answers_since_s >= self.quiet_s:
                try:
                    await self.sweep()
                except Exception:
                    _log.exception("a sweep failed")

    async def sweep(self) -> int:
        """Settle what was abandoned in any organization, unless another node is at it; return how many."""
        if not await self.store.ask(self._take_turn):
            return 0
        orgs = await self._find_orgs()
        return sum([await self._sweep_some(orgs[at : at + ORGS_AT_ONCE]) for at in range(0, len(orgs), ORGS_AT_ONCE)])

    async def _take_turn(self, redis: Redis) -> bool:
        """The turn ends by itself: it is shorter than the next sweep is away."""
        turn_ms = min(TURN_MS, int(self.sweep_every_s * 1000))
        return bool(await redis.set(names.SWEEPER, self.node_id, nx=True, px=max(1, turn_ms)))

    async def _find_orgs(self) -> list[str]:
        """Those that were active in the last days; a few at a time, whoever was not and has no lease is forgotten."""
        before_s = await self._now_ms() // 1000 - FORGET_ORG_S
        listed = await self.store.ask(_fetch_orgs) or []
        quiet = [org for org, active_s in listed if active_s < before_s]
        # Any of them: some may have a lease that nobody can read, and stay.
        quiet = random.sample(quiet, min(ORGS_AT_ONCE, len(quiet)))
        at_rest = await self.store.ask(_without_leases(quiet)) if quiet else None
        if at_rest:
            await self.store.run(_REST, [names.ORGS], [before_s, *at_rest])
        gone = set(at_rest or ())
        return [org for org, _ in listed if org not in gone]

    async def _sweep_some(self, orgs: list[str]) -> int:
        now_ms = await self._now_ms()
        ended = await self.store.ask(_ended_leases(orgs, now_ms)) or []
        settled = 0
        for org, request_id in ended:
            settlement = await self._read(org, request_id)
            if settlement is not None and isinstance(await self.limiter.settle(settlement), Settled | Amended):
                settled += 1
                _log.warning("an abandoned request was settled", extra={"facts": {"request": request_id}})
        return settled

    async def _read(self, org: str, request_id: str) -> Settlement | None:
        """The bill of an ended lease, or None where nothing is left to bill."""
        stored = await self.store.ask(_reservation(org, request_id))
        if stored is None:
            return None
        if not stored:
            keys = [names.reservation_key(org, request_id), names.leases_key(org)]
            await self.store.run(_FORGET, keys, [0 if self.clock_ms is None else self.clock_ms(), request_id])
            return None
        try:
            return read_abandoned(stored)
        except (Unreadable, KeyError, ValueError):
            _log.error("a reservation is unreadable", extra={"facts": {"request": request_id}})
            return None

    async def _now_ms(self) -> int:
        if self.clock_ms is not None:
            return self.clock_ms()
        return await self.store.ask(_redis_ms) or 0


def read_abandoned(stored: dict[str, str]) -> Settlement:
    """The bill that follows from a reservation as it is stored.

    Raises:
        Unreadable, KeyError, ValueError: it is none of ours.
    """
    progress = Progress(
        stored.get("prefilled") == "1",
        int(stored.get("input", 0)),
        int(stored.get("output", 0)),
        int(stored.get("cached", 0)),
    )
    hold = Hold(decode_subject(stored["facts"]), int(stored["admitted_ms"]), stored["owner"])
    return build_abandoned(hold, progress, int(stored.get("images", 0)))


async def _ping(redis: Redis) -> bool:
    await redis.ping()
    return True


async def _redis_ms(redis: Redis) -> int:
    seconds, microseconds = await redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


async def _fetch_orgs(redis: Redis) -> list[tuple[str, float]]:
    """With the second when each was last active."""
    return cast("list[tuple[str, float]]", await redis.zrange(names.ORGS, 0, -1, withscores=True))


def _without_leases(orgs: list[str]) -> Callable[[Redis], Awaitable[list[str]]]:
    """Which of them."""

    async def fetch(redis: Redis) -> list[str]:
        async with redis.pipeline(transaction=False) as reads:
            for org in orgs:
                reads.exists(names.leases_key(org))
            found = cast("list[int]", await reads.execute())
        return [org for org, has_leases in zip(orgs, found, strict=True) if not has_leases]

    return fetch


def _ended_leases(orgs: list[str], now_ms: int) -> Callable[[Redis], Awaitable[list[tuple[str, str]]]]:
    """Organization and request of each."""

    async def fetch(redis: Redis) -> list[tuple[str, str]]:
        async with redis.pipeline(transaction=False) as reads:
            for org in orgs:
                reads.zrangebyscore(names.leases_key(org), "-inf", f"({now_ms}", start=0, num=MOST_AT_ONCE)
            ended = cast("list[list[str]]", await reads.execute())
        return [(org, request_id) for org, ids in zip(orgs, ended, strict=True) for request_id in ids]

    return fetch


def _reservation(org: str, request_id: str) -> Callable[[Redis], Awaitable[dict[str, str]]]:
    async def fetch(redis: Redis) -> dict[str, str]:
        return cast("dict[str, str]", await redis.hgetall(names.reservation_key(org, request_id)))

    return fetch
