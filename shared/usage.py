"""Usage of an organization by day, key and model, and what a key has spent.

Decides how a day's counters are named and read. Must not know who counts. All of it follows from the ledger: a day's
hash is a sum of entries, kept for quick answers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from typing import cast

from redis.asyncio import Redis

from shared.org_keys import spend_key, usage_key

COUNTED = ("requests", "input_tokens", "output_tokens", "cached_tokens", "image_bytes", "cost_nano_usd")


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one key used of one model on one UTC day (`2026-11-30`)."""

    day: str
    key_id: str
    model: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    image_bytes: int = 0
    cost_nano_usd: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """Nano-dollars of one key in one period: billed, and held for requests that run."""

    settled: int
    held: int


def field_prefix(key_id: str, model: str) -> str:
    """A day's field is this and one of `COUNTED`; models hold no space."""
    return f"{key_id} {model} "


class UsageReader:
    """Reads one store. Redis's errors pass."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def fetch_days(self, org: str, first: date, last: date) -> list[UsageRow]:
        """Every row from `first` to `last`, both included, by day, key and model."""
        days = [(first + timedelta(days=number)).isoformat() for number in range((last - first).days + 1)]
        async with self._redis.pipeline(transaction=False) as reads:
            for day in days:
                reads.hgetall(usage_key(org, day))
            hashes = cast("list[dict[str, str]]", await reads.execute())
        return [row for day, counters in zip(days, hashes, strict=True) for row in _read_day(day, counters)]

    async def fetch_spent(self, org: str, key_id: str, period: str) -> Spent:
        """Of a period by its name: `2026-11-30`, `2026-11` or `total`."""
        stored = await self._redis.hmget(spend_key(org, key_id, period), ["settled", "held"])
        settled, held = (int(value or 0) for value in stored)
        return Spent(settled, held)


def _read_day(day: str, counters: dict[str, str]) -> list[UsageRow]:
    rows: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for name, value in counters.items():
        key_id, model, counted = name.rsplit(" ", 2)
        if counted in COUNTED:
            rows[key_id, model][counted] = int(value)
    return [UsageRow(day, key_id, model, **counts) for (key_id, model), counts in sorted(rows.items())]
