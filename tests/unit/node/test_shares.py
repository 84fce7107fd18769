"""Whose turn it is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

from node.shares import Shares


class Crowd:
    """Callers that hold a place until they are told to go."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self.holders: list[str] = []
        self._tasks: list[tuple[str, asyncio.Task[None], asyncio.Event]] = []

    async def come(self, *names: str) -> None:
        for name in names:
            leave = asyncio.Event()
            self._tasks.append((name, asyncio.create_task(self._stay(name, leave)), leave))
        await settle()

    async def go(self, name: str) -> None:
        """The one of this name who has held longest."""
        index = next(i for i, (who, task, leave) in enumerate(self._tasks) if who == name and not leave.is_set())
        _, task, leave = self._tasks.pop(index)
        leave.set()
        await task
        await settle()

    async def end(self) -> None:
        for _, task, _ in self._tasks:
            task.cancel()
        await asyncio.gather(*(task for _, task, _ in self._tasks), return_exceptions=True)

    async def _stay(self, name: str, leave: asyncio.Event) -> None:
        async with self._shares.place(name):
            self.holders.append(name)
            try:
                await leave.wait()
            finally:
                self.holders.remove(name)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nobody_holds_all_places() -> None:
    crowd = Crowd(Shares(4, 3))
    await crowd.come(*"aaaaaa")
    assert crowd.holders == ["a"] * 3
    await crowd.come("b")
    assert Counter(crowd.holders) == {"a": 3, "b": 1}
    await crowd.end()


async def test_who_holds_fewest_is_next_however_long_others_have_waited() -> None:
    crowd = Crowd(Shares(3, 3))
    await crowd.come(*"aaaaaaaa", "b", "c")
    assert Counter(crowd.holders) == {"a": 3}
    await crowd.go("a")
    assert Counter(crowd.holders) == {"a": 2, "b": 1}
    await crowd.go("a")
    assert Counter(crowd.holders) == {"a": 1, "b": 1, "c": 1}
    await crowd.end()


async def test_equals_take_turns() -> None:
    crowd = Crowd(Shares(1, 1))
    await crowd.come("a", "a", "b", "b", "c")
    order = []
    for _ in range(5):
        order += crowd.holders
        await crowd.go(crowd.holders[0])
    assert order == ["a", "b", "c", "a", "b"]
    await crowd.end()


async def test_who_gives_up_waiting_takes_no_place() -> None:
    shares = Shares(1, 1)
    crowd = Crowd(shares)
    await crowd.come("a")
    waiting = asyncio.create_task(Crowd(shares).come("b"))
    await waiting
    assert shares.waiting == 1
    quitter = asyncio.create_task(shares.place("c").__aenter__())
    await settle()
    quitter.cancel()
    with suppress(asyncio.CancelledError):
        await quitter
    assert shares.waiting == 1
    await crowd.end()


@pytest.mark.parametrize("seed", range(5))
async def test_no_place_is_lost_whoever_is_cancelled_when(seed: int) -> None:
    chance = random.Random(seed)
    shares = Shares(3, 2)
    inside = 0

    async def visit(who: str) -> None:
        nonlocal inside
        async with shares.place(who):
            inside += 1
            assert inside <= 3
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside -= 1

    tasks: list[asyncio.Task[None]] = []
    for _ in range(400):
        tasks.append(asyncio.create_task(visit(chance.choice("abc"))))
        if chance.random() < 0.4:
            chance.choice(tasks).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [result for result in results if isinstance(result, AssertionError)]
    assert shares.waiting == 0
    async with asyncio.timeout(5), shares.place("a"), shares.place("b"), shares.place("c"):
        pass
