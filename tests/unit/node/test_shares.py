"""Whose turn it is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

from node.shares import Hold, Shares


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


# More than one place at once.


async def wanting(shares: Shares, who: str, count: int) -> asyncio.Task[None]:
    task = asyncio.create_task(shares.acquire(who, count))
    await settle()
    return task


async def test_what_is_asked_for_comes_at_once_or_not_at_all() -> None:
    shares = Shares(10, 10)
    first, second = await wanting(shares, "a", 6), await wanting(shares, "b", 5)
    assert (first.done(), second.done(), shares.held) == (True, False, 6)
    shares.release("a", 1)
    await settle()
    assert (second.done(), shares.held) == (True, 10)


async def test_nobody_holds_more_than_his_share_however_he_asks() -> None:
    shares = Shares(10, 5)
    tasks = [await wanting(shares, "a", 2) for _ in range(4)]
    assert [task.done() for task in tasks] == [True, True, False, False]
    assert (await wanting(shares, "b", 5)).done()
    shares.release("a", 1)
    await settle()
    assert [task.done() for task in tasks[2:]] == [True, False]
    shares.release("b", 5)
    await settle()
    assert not tasks[3].done()  # five are free, and he has five
    tasks[3].cancel()
    with pytest.raises(ValueError, match="5 at most"):
        await shares.acquire("c", 6)


async def test_small_wishes_do_not_overtake_a_large_one_that_is_next() -> None:
    shares = Shares(10, 10)
    await shares.acquire("a", 6)
    large, small = await wanting(shares, "b", 8), await wanting(shares, "a", 1)
    assert not small.done()
    large.cancel()
    await settle()
    assert small.done()


async def test_who_holds_least_is_next_whatever_others_wait_for() -> None:
    shares = Shares(10, 9)
    await shares.acquire("a", 6)
    await shares.acquire("b", 3)
    more_a, more_b = await wanting(shares, "a", 2), await wanting(shares, "b", 2)
    shares.release("a", 1)
    await settle()
    assert (more_a.done(), more_b.done()) == (False, True)
    more_a.cancel()


async def test_a_hold_waits_for_so_long_and_gives_back_what_it_has() -> None:
    shares = Shares(10, 10)
    one, another = Hold(shares, "a"), Hold(shares, "b")
    await one.take(8, within_s=1)
    with pytest.raises(TimeoutError):
        await another.take(3, within_s=0.01)
    assert (shares.held, shares.waiting) == (8, 0)
    one.give_back(5)
    await another.take(3, within_s=1)
    another.end()
    assert shares.held == 3
    one.end()
    one.end()
    assert shares.held == 0


@pytest.mark.parametrize("seed", range(5))
async def test_no_place_is_lost_of_many_whoever_is_cancelled_when(seed: int) -> None:
    chance = random.Random(seed)
    shares = Shares(10, 6)

    async def visit(who: str) -> None:
        hold = Hold(shares, who)
        try:
            await hold.take(chance.randrange(1, 7), within_s=chance.choice([0.001, 60]))
            assert shares.held <= 10
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        finally:
            hold.end()

    tasks: list[asyncio.Task[None]] = []
    for _ in range(400):
        tasks.append(asyncio.create_task(visit(chance.choice("abc"))))
        if chance.random() < 0.4:
            chance.choice(tasks).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [result for result in results if isinstance(result, AssertionError)]
    assert (shares.waiting, shares.held) == (0, 0)


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
    async with asyncio.timeout(60), shares.place("a"), shares.place("b"), shares.place("c"):
        pass
