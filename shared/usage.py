"""Usage of an organization by day, key and model, and what a key has spent.

Decides how a day's counters are named and read. Must not know who counts. All of it follows from the ledger: a day's
hash is a sum of entries, kept for quick answers.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

from redis.asyncio import Redis

from shared.org_keys import spend_key, usage_key

COUNTED = ("requests", "input_tokens", "output_tokens", "cached_tokens", "image_bytes", "cost_nano_usd")
_DAYS_AT_ONCE = 7
_FIELDS_AT_ONCE = 250
"""Of each of these days: some 2000 counters, which the loop reads in a few milliseconds."""
Step = Callable[[], AbstractAsyncContextManager[None]]


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


class Count(NamedTuple):
    """One number of a row: `counted` is one of `COUNTED`."""

    day: str
    key_id: str
    model: str
    counted: str
    value: int


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
        return build_rows([count async for counts in self.scan_days(org, first, last) for count in counts])

    async def scan_days(
        self, org: str, first: date, last: date, step: Step = contextlib.nullcontext
    ) -> AsyncIterator[list[Count]]:
        """Every counter of these days once, in pieces that neither Redis nor the loop is held up by.

        Args:
            step: entered around each reading.
        """
        days = [(first + timedelta(days=number)).isoformat() for number in range((last - first).days + 1)]
        for begun in range(0, len(days), _DAYS_AT_ONCE):
            cursors = dict.fromkeys(days[begun : begun + _DAYS_AT_ONCE], 0)
            told: dict[str, set[str]] = {day: set() for day in cursors}  # a scan may tell a field twice
            while cursors:
                async with step():
                    pieces = await self._scan(org, cursors)
                for day, (_, fields) in pieces.items():
                    yield [
                        count for name in fields.keys() - told[day] if (count := read_count(day, name, fields[name]))
                    ]
                    told[day] |= fields.keys()
                cursors = {day: cursor for day, (cursor, _) in pieces.items() if cursor}

    async def _scan(self, org: str, cursors: Mapping[str, int]) -> dict[str, tuple[int, dict[str, str]]]:
        async with self._redis.pipeline(transaction=False) as reads:
            for day, cursor in cursors.items():
                reads.hscan(usage_key(org, day), cursor, count=_FIELDS_AT_ONCE)
            pieces = await reads.execute()
        return {day: (int(cursor), fields) for day, (cursor, fields) in zip(cursors, pieces, strict=True)}

    async def fetch_spent(self, org: str, key_id: str, period: str) -> Spent:
        """Of a period by its name: `2026-11-30`, `2026-11` or `total`."""
        stored = await self._redis.hmget(spend_key(org, key_id, period), ["settled", "held"])
        settled, held = (int(value or 0) for value in stored)
        return Spent(settled, held)


def read_count(day: str, name: str, value: str) -> Count | None:
    """One field of a day; None if it is of a version that counts more than we know."""
    key_id, model, counted = name.rsplit(" ", 2)
    return Count(day, key_id, model, counted, int(value)) if counted in COUNTED else None


def build_rows(counts: Iterable[Count]) -> list[UsageRow]:
    """By day, key and model."""
    rows: defaultdict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for count in counts:
        rows[count.day, count.key_id, count.model][count.counted] = count.value
    return [UsageRow(day, key_id, model, **rows[day, key_id, model]) for day, key_id, model in sorted(rows)]
