"""Strangers whose client leaves: what is begun for them goes on, and stays within the bounds of those who stay."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from multidict import CIMultiDict

from edge.auth.authenticate import STRANGERS_AT_ONCE, Authenticator
from edge.auth.cache import RecordCache
from edge.auth.credentials import mint_credential
from edge.auth.failures import AddressLimit
from edge.auth.hosts import Hosts
from edge.auth.key_record import KeyRecord
from edge.auth.sessions import SessionRecord
from edge.auth.store import StoreUnavailable

KEY = KeyRecord("key_1", "sk", "acme", "main", "dev", ("infer:run",), "active", "abcd", 0, None)
ADDRESS = "8.8.8.8"


@dataclass(frozen=True)
class Request:
    """With a key that this edge has not seen."""

    headers: CIMultiDict[str] = field(default_factory=lambda: CIMultiDict({"x-api-key": mint_credential().token}))
    method: str = "POST"
    remote: str | None = ADDRESS


class Strangers:
    """An authenticator whose store gives every key the same answer, once it may."""

    def __init__(self, most: int, answer: KeyRecord | StoreUnavailable | None = None) -> None:
        self.answer = answer
        self.gate = asyncio.Event()
        self.begun = self.ended = self.most_at_once = 0
        self.limit = AddressLimit(most, 60, self.clock)
        keys = RecordCache(self.load, self.clock)
        sessions = RecordCache[SessionRecord](self.load_nothing, self.clock)
        self.authenticator = Authenticator(
            keys, sessions, Hosts(["localhost"]), self.limit, self.clock, trusted_proxies=0
        )

    def clock(self) -> float:
        return 1.0

    async def load(self, digest: str) -> KeyRecord | None:
        del digest
        self.begun += 1
        self.most_at_once = max(self.most_at_once, self.begun - self.ended)
        await self.gate.wait()
        self.ended += 1
        if isinstance(self.answer, StoreUnavailable):
            raise self.answer
        return self.answer

    async def load_nothing(self, digest: str) -> None:
        del digest

    async def come_and_leave(self, count: int) -> None:
        """One after the other, each while the store is asked."""
        for _ in range(count):
            task = asyncio.create_task(self.authenticator.identify(Request()))
            await settle()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def settle() -> None:
    """Let everything go on that can: nothing here waits for the world."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_strangers_who_leave_are_looked_up_no_more_at_once_than_those_who_stay() -> None:
    strangers = Strangers(most=100)
    await strangers.come_and_leave(3 * STRANGERS_AT_ONCE)
    await settle()
    assert strangers.begun == STRANGERS_AT_ONCE
    strangers.gate.set()
    await settle()
    assert (strangers.ended, strangers.most_at_once) == (3 * STRANGERS_AT_ONCE, STRANGERS_AT_ONCE)


@pytest.mark.parametrize(
    ("answer", "is_counted"),
    [(KEY, False), (StoreUnavailable("away"), False), (None, True)],
    ids=["known", "nobody could look", "unknown"],
)
async def test_who_leaves_is_judged_by_the_answer(
    answer: KeyRecord | StoreUnavailable | None, is_counted: bool
) -> None:
    strangers = Strangers(3, answer)
    await strangers.come_and_leave(3)
    assert strangers.limit.wait_of(ADDRESS) is not None  # until it is known
    strangers.gate.set()
    await settle()
    assert (strangers.limit.wait_of(ADDRESS) is not None) == is_counted
