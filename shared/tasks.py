"""How a task is ended from outside. Must not know what it does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended.

    Again and again: a cancellation that comes while redis-py connects under uvloop may be swallowed.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work`, which ends by itself only if it fails, while the body runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await end_task(task)


class Interruption:
    """A cancellation of the current task that it can tell from any other."""

    __slots__ = ("_cancelled_before", "_is_made", "_task")

    def __init__(self) -> None:
        """Of the task that runs now."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - coroutines run in tasks
        self._task, self._cancelled_before, self._is_made = task, task.cancelling(), False

    def interrupt(self) -> None:
        """Cancel it, once."""
        if not self._is_made:
            self._is_made = True
            self._task.cancel()

    def absorb(self) -> bool:
        """For whom a cancellation reached: whether it was this one alone, and is over now."""
        return self._is_made and self._task.uncancel() <= self._cancelled_before
