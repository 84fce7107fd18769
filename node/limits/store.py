"""Redis as the limits use it: scripts, a deadline, and a breaker.

Decides how long an answer is waited for. Must not know what the scripts do. `None` is "Redis does not answer": what
that means, its callers decide.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from node.limits.breaker import Breaker

ANSWER_S = 1.0
Argument = str | int | float
T = TypeVar("T")
_FOLDER = Path(__file__).parent / "lua"
_log = logging.getLogger("b3os.limits")


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, and the digest by which Redis knows it."""

    text: str
    digest: str


def load_script(name: str) -> Script:
    """`lua/<name>.lua`, with the meters before it."""
    text = "\n".join((_FOLDER / f"{part}.lua").read_text() for part in ("meter", name))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class Store:
    """One Redis behind one breaker."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.breaker = Breaker(self._probe)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> list[Any] | None:
        """A script's answer. Redis forgets scripts when it restarts: the text follows where the digest is unknown."""

        async def evaluate(redis: Redis) -> list[Any]:
            try:
                answer = await redis.evalsha(script.digest, len(keys), *keys, *arguments)
            except NoScriptError:
                answer = await redis.eval(script.text, len(keys), *keys, *arguments)
            return cast("list[Any]", answer)

        return await self.ask(evaluate)

    async def ask(self, question: Callable[[Redis], Awaitable[T]]) -> T | None:
        """The answer to anything, within the deadline."""
        if self.breaker.is_open:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                return await question(self._redis)
        except (RedisConnectionError, RedisTimeoutError, OSError, TimeoutError):
            self.breaker.trip()
        except RuntimeError:
            _log.exception("the connection broke")  # uvloop's word for writing to one that ended a moment ago
            self.breaker.trip()
        except RedisError:
            _log.exception("Redis refused")  # full, read-only, or a fault of ours: it answers, so no breaker
        return None

    async def _probe(self) -> None:
        async with asyncio.timeout(ANSWER_S):
            await self._redis.ping()

    async def aclose(self) -> None:
        """Stop probing; the client is its owner's to close."""
        await self.breaker.aclose()
