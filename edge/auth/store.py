"""What every store of identity has in common: how long it may take, and what goes wrong.

Decides when a store counts as unavailable. Must not know what is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

LOOKUP_S = 1.0


class StoreUnavailable(Exception):
    """Redis does not answer."""


class UnknownRecord(Exception):
    """There is no such organization, project, user or key; the message is one sentence for an operator."""


class RecordExists(Exception):
    """There is one already; the message is one sentence for an operator."""


class NoRoom(Exception):
    """There are as many as there may be; the message is one sentence for whoever wants one more."""


class NotYours(Exception):
    """The record is there, and is not for this one to change."""


@contextlib.asynccontextmanager
async def answering() -> AsyncIterator[None]:
    """Bound what is asked of Redis for a caller who waits.

    Raises:
        StoreUnavailable: Redis does not answer within about `LOOKUP_S`.
    """
    try:
        async with asyncio.timeout(LOOKUP_S):
            yield
    except (RedisError, OSError, TimeoutError, RuntimeError) as error:
        # uvloop has a plain RuntimeError where a connection ends in the moment in which something is written to it.
        raise StoreUnavailable(type(error).__name__) from error


async def read_hash(redis: Redis, name: str) -> dict[str, str]:
    """A whole hash; empty where there is none."""
    return cast("dict[str, str]", await redis.hgetall(name))


async def read_set(redis: Redis, name: str) -> set[str]:
    """A whole set."""
    return cast("set[str]", await redis.smembers(name))


async def run_script(redis: Redis, script: str, keys: list[str], *arguments: str | int) -> int:
    """Run a Lua script that answers with a number: its verdict."""
    answer: Any = await redis.register_script(script)(keys=keys, args=list(arguments))
    return int(answer)
