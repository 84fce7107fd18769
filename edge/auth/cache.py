"""Keys and sessions remembered for seconds, so that most requests never wait for Redis.

Decides how long an answer of the store may be believed, that a revocation is never undone by a read that began before
it, and of which records it is remembered longer that there was one. Must not know where keys are stored nor how
invalidations arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from edge.auth.store import StoreUnavailable

POSITIVE_S = 10.0
NEGATIVE_S = 2.0
CAPACITY = 10_000
MET_PER_ENTRY = 4
"""How many times as many are remembered by their digest alone: about 10 MB."""
RETRY_S = 0.5
"""How long a store that did not answer isn't asked again, so that in an outage callers don't all wait for it."""
R = TypeVar("R")
Load = Callable[[str], Awaitable[R | None]]


@dataclass(frozen=True, slots=True)
class _Entry(Generic[R]):
    record: R | None
    good_until_s: float


class _Bounded(Generic[R]):
    """The most recently used entries, at most `capacity` of them."""

    __slots__ = ("_capacity", "_entries")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[str, _Entry[R]] = OrderedDict()

    def get(self, digest: str, now_s: float) -> _Entry[R] | None:
        entry = self._entries.get(digest)
        if entry is None or now_s >= entry.good_until_s:
            return None
        self._entries.move_to_end(digest)
        return entry

    def put(self, digest: str, entry: _Entry[R]) -> None:
        self._entries[digest] = entry
        self._entries.move_to_end(digest)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def drop(self, digest: str) -> None:
        self._entries.pop(digest, None)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class RecordCache(Generic[R]):
    """Answers from memory, else loads once for all who wait.

    Known and unknown records are bounded apart, so that a flood of made-up keys evicts no real one. A load in flight
    is listed in `_loads` under its digest; an invalidation takes it off the list, and only a load that is listed yet
    when it ends may write. That is a generation counter for each record. The digests of what the store had are kept
    for longer, and say no more than that it had it.

    Attributes:
        reads, failures: how often the store was asked, and how often it did not answer.
    """

    def __init__(self, load: Load[R], clock: Callable[[], float], *, capacity: int = CAPACITY) -> None:
        """`clock` gives monotonic seconds."""
        self._load = load
        self._clock = clock
        self._known: _Bounded[R] = _Bounded(capacity)
        self._unknown: _Bounded[R] = _Bounded(capacity)
        self._loads: dict[str, asyncio.Task[R | None]] = {}
        self._met: OrderedDict[str, None] = OrderedDict()
        self._most_met = capacity * MET_PER_ENTRY
        self._ask_again_s: float | None = None
        self._why_away = ""
        self.reads = self.failures = 0

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    def is_strange(self, digest: str) -> bool:
        """Whether the store would have to be asked of something of which it is not remembered that it has it."""
        if digest in self._met or digest in self._loads:
            return False
        return self._unknown.get(digest, self._clock()) is None

    def expect(self, digest: str) -> None:
        """There is such a record from now on: it is nothing strange."""
        self.invalidate(digest)
        self._meet(digest)

    async def get(self, digest: str) -> R | None:
        """The record under this SHA-256, at most `POSITIVE_S` old, or None, at most `NEGATIVE_S` old.

        Raises:
            StoreUnavailable: of `load`; nothing is remembered then, but that it failed. While it fails, one caller at
            a time finds out whether it still does, and the others hear of it at once.
        """
        now_s = self._clock()
        entry = self._known.get(digest, now_s) or self._unknown.get(digest, now_s)
        if entry is not None:
            return entry.record
        return await asyncio.shield(self.begin(digest))  # one waiter that leaves must not fail the others

    def begin(self, digest: str, places: asyncio.Semaphore | None = None) -> asyncio.Task[R | None]:
        """The load in flight, or a new one; whoever waits for it, it goes on, and holds one of `places` meanwhile."""
        task = self._loads.get(digest)
        if task is None:
            task = self._loads[digest] = asyncio.create_task(self._fill(digest, places))
            task.add_done_callback(_mark_retrieved)
        return task

    def invalidate(self, digest: str) -> None:
        """Forget a record, and whatever a read that has begun will bring."""
        self._loads.pop(digest, None)
        self._known.drop(digest)
        self._unknown.drop(digest)

    def clear(self) -> None:
        """Forget everything, since invalidations may have been missed."""
        self._loads.clear()
        self._known.clear()
        self._unknown.clear()

    def _check_away(self, now_s: float) -> None:
        if self._ask_again_s is None:
            return
        if now_s < self._ask_again_s:
            raise StoreUnavailable(self._why_away)
        self._ask_again_s = now_s + RETRY_S

    async def _fill(self, digest: str, places: asyncio.Semaphore | None) -> R | None:
        task = asyncio.current_task()
        try:
            async with places or contextlib.nullcontext():
                began_s = self._clock()
                record = await self._read(digest, began_s)
            if self._loads.get(digest) is task:
                self._write(digest, record, began_s)
            return record
        finally:
            if self._loads.get(digest) is task:
                del self._loads[digest]

    async def _read(self, digest: str, now_s: float) -> R | None:
        self._check_away(now_s)
        self.reads += 1
        try:
            record = await self._load(digest)
        except StoreUnavailable as error:
            self._why_away = str(error)
            self.failures += 1
            self._ask_again_s = self._clock() + RETRY_S
            raise
        self._ask_again_s = None
        return record

    def _write(self, digest: str, record: R | None, began_s: float) -> None:
        """Ages count from the beginning of the read: what it saw is no younger than that."""
        kept, other, good_for_s = (
            (self._unknown, self._known, NEGATIVE_S) if record is None else (self._known, self._unknown, POSITIVE_S)
        )
        other.drop(digest)
        kept.put(digest, _Entry(record, began_s + good_for_s))
        if record is None:
            self._met.pop(digest, None)
        else:
            self._meet(digest)

    def _meet(self, digest: str) -> None:
        self._met[digest] = None
        self._met.move_to_end(digest)
        if len(self._met) > self._most_met:
            self._met.popitem(last=False)


def _mark_retrieved(task: asyncio.Task[R | None]) -> None:
    """A failed load whose waiters have all left is no news to the loop's exception handler."""
    if not task.cancelled():
        task.exception()
