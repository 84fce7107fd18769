"""Long work in threads: whose turn it is, and what becomes of work that nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from node.slow_work import THREADS, SlowWork


class Job:
    """Work that ends when it is told to."""

    def __init__(self, slow: SlowWork, payer: str) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.task = asyncio.create_task(slow.run(self._work, payer))

    async def begin(self) -> None:
        """Return once it has begun."""
        assert await asyncio.to_thread(self.begun.wait, 30)

    async def end(self) -> str:
        """Have it end."""
        self.may_end.set()
        return await self.task

    def _work(self) -> str:
        self.begun.set()
        assert self.may_end.wait(30)
        return threading.current_thread().name


@pytest.fixture
async def jobs() -> AsyncIterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.may_end.set()
    await asyncio.gather(*(job.task for job in made), return_exceptions=True)


async def test_what_is_short_is_done_at_once() -> None:
    slow = SlowWork()
    assert await slow.run(threading.current_thread, "a", is_short=True) is threading.current_thread()
    assert await slow.run(threading.current_thread, "a") is not threading.current_thread()


async def test_what_it_raises_comes_out_and_the_next_has_its_turn() -> None:
    slow = SlowWork()
    for _ in range(3 * THREADS):
        with pytest.raises(ZeroDivisionError):
            await slow.run(lambda: 1 // 0, "a")


async def test_one_payer_never_has_all_threads(jobs: list[Job]) -> None:
    slow = SlowWork()
    first, second, other = (Job(slow, payer) for payer in ("greedy", "greedy", "other"))
    jobs += [first, second, other]
    await first.begin()
    await other.begin()
    await other.end()
    assert await slow.run(lambda: "third", "third") == "third"
    assert not second.begun.is_set()
    await first.end()
    await second.begin()


async def test_who_gives_up_waiting_gives_up_his_turn(jobs: list[Job]) -> None:
    slow = SlowWork()
    first, impatient, next_one = (Job(slow, "a") for _ in range(3))
    jobs += [first, impatient, next_one]
    await first.begin()
    impatient.task.cancel()
    await first.end()
    await next_one.begin()
    assert not impatient.begun.is_set()


async def test_work_that_nobody_waits_for_keeps_its_place_until_it_ends(jobs: list[Job]) -> None:
    slow = SlowWork()
    left, next_one = Job(slow, "a"), Job(slow, "a")
    jobs += [left, next_one]
    await left.begin()
    left.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left.task
    assert await slow.run(lambda: "other", "b") == "other"
    assert not next_one.begun.is_set()
    left.may_end.set()
    await next_one.begin()
