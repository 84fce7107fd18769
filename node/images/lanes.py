"""Several jobs of one request at once, so that its twentieth doesn't stand before another's first.

Decides when a failure ends the others. A failure of one of them leaves no trace: an exception that leads back to
itself, through a task or a frame, keeps all that these frames ever held, whole requests, until Python looks for such
rings, which the node has it do seldom. Must not know what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

Job = Callable[[], Awaitable[T]]


async def run_until_failure(jobs: Iterable[Job[T]], lanes: int) -> list[T]:
    """Their results, in order. The first failure ends the others, and is raised.

    Args:
        lanes: how many go on at once.
    """
    tasks = _start(jobs, lanes)
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def run_in_order(jobs: Iterable[Job[T]], lanes: int) -> list[T]:
    """Their results, in order. The failure of the earliest job that fails ends those behind it, and is raised.

    Args:
        lanes: how many go on at once.
    """
    tasks = _start(jobs, lanes)
    results: list[T] = []
    try:
        while tasks:
            results.append(await tasks[0])
            del tasks[0]
    except BaseException:
        results.clear()
        raise
    finally:
        await _end(tasks)
    return results


def _start(jobs: Iterable[Job[T]], lanes: int) -> list[asyncio.Task[T]]:
    free = asyncio.Semaphore(lanes)
    return [asyncio.create_task(_in_lane(free, job)) for job in jobs]


async def _in_lane(free: asyncio.Semaphore, job: Job[T]) -> T:
    async with free:
        try:
            return await job()
        except Exception as error:
            if error.__suppress_context__:
                # Said `from None`, so it tells nobody anything; and a timeout's leads back to this task.
                error.__context__ = None
            raise


async def _end(tasks: list[asyncio.Task[T]]) -> None:
    """Nothing of them is left: whoever waits has no name for them any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tasks.clear()
