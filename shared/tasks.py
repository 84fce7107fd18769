"""How a background task is ended. Must not know what it does."""

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
