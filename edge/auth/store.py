"""What every store of identity has in common: how a change is made once, how long it may take, and what goes wrong.

Decides when a store counts as unavailable, and that a change which is sent again changes nothing more. Must not know
what is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any, cast

from redis.asyncio import Redis

from shared.redis import FAILURES, cause_of

LOOKUP_S = 1.0
REMEMBERED_S = 60
"""For how long a change knows itself again. It is sent again within a second, or as late as a loop may be."""

# The client sends a script again that was not answered in time, and the first one may have been run all the same. So
# what it told is kept beside the first of its keys and told again: whoever asked learns what became of it.
_ONCE = """
local mark = KEYS[1] .. ':told:' .. table.remove(ARGV)
local told = redis.call('GET', mark)
if told then return cjson.decode(told) end
local function change()
%s
end
local answer = change()
if type(answer) == 'number' and answer > 0 or type(answer) == 'table' and answer[1] then
  redis.call('SET', mark, cjson.encode(answer), 'EX', %d)
end
return answer
"""


class StoreUnavailable(Exception):
    """Redis does not answer as it should; the message is the cause in one word, for the log."""


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
    except FAILURES as error:
        raise StoreUnavailable(cause_of(error)) from error


async def read_hash(redis: Redis, name: str) -> dict[str, str]:
    """A whole hash; empty where there is none."""
    return cast("dict[str, str]", await redis.hgetall(name))


async def read_set(redis: Redis, name: str) -> set[str]:
    """A whole set."""
    return cast("set[str]", await redis.smembers(name))


async def run_change(redis: Redis, script: str, keys: list[str], *arguments: str | int) -> Any:
    """Run a Lua script that changes something: once, however often it is sent.

    Args:
        script: answers with a number, or with a list of strings: one of 0 or less, or an empty one, if it changed
            nothing. Then nothing is kept, so nobody makes records by asking for what is not there.
        keys: beside the first, what was answered is kept for `REMEMBERED_S`.
    """
    attempt = secrets.token_hex(8)
    return await redis.register_script(_ONCE % (script, REMEMBERED_S))(keys=keys, args=[*arguments, attempt])


async def run_script(redis: Redis, script: str, keys: list[str], *arguments: str | int) -> int:
    """The same for a script that answers with a number: its verdict."""
    return int(await run_change(redis, script, keys, *arguments))
