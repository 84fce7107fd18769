"""Redis as the limits use it: scripts, a deadline, and a breaker.

Decides how long an answer is waited for. Must not know what the scripts do. `None` is "Redis does not answer": what
that means, its callers decide.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from node.limits.breaker import Breaker
from node.limits.heartbeat import Heartbeat
from shared.redis import cause_of

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
    """`lua/<name>.lua`, with what scripts share before it."""
    text = "\n".join((_FOLDER / f"{part}.lua").read_text() for part in ("meter", "log", "spend", "done", name))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@dataclass(slots=True)
class Delivery:
    """What became of a question that had no answer.

    Attributes:
        may_have_acted: whether it was sent: Redis may do as it says, or has done so.
    """

    may_have_acted: bool = False


class Store:
    """One Redis behind one breaker."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.breaker = Breaker(self._probe)
        self._heartbeat = Heartbeat()
        self._excused_s: float | None = None

    async def run(
        self,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        delivery: Delivery | None = None,
    ) -> list[Any] | None:
        """A script's answer. Redis forgets scripts when it restarts: the text follows where the digest is unknown."""

        async def evaluate(redis: Redis) -> list[Any]:
            try:
                answer = await redis.evalsha(script.digest, len(keys), *keys, *arguments)
            except NoScriptError:
                answer = await redis.eval(script.text, len(keys), *keys, *arguments)
            return cast("list[Any]", answer)

        return await self.ask(evaluate if delivery is None else _noted(evaluate, delivery))

    async def ask(self, question: Callable[[Redis], Awaitable[T]]) -> T | None:
        """The answer to anything, within the deadline; asked once more where it may be us who missed it."""
        answer, is_missed = await self._ask_once(question)
        if is_missed:
            answer, _ = await self._ask_once(question)
        return answer

    async def _ask_once(self, question: Callable[[Redis], Awaitable[T]]) -> tuple[T | None, bool]:
        if self.breaker.is_open:
            return None, False
        self._heartbeat.start()
        asked_s = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await question(self._redis)
            self._excused_s = None
            return answer, False
        except (RedisTimeoutError, TimeoutError) as error:
            return None, self._is_excused(asked_s, cause_of(error))
        except (RedisConnectionError, OSError) as error:
            self.breaker.trip(cause_of(error))
        except RuntimeError as error:
            _log.exception("the connection broke")  # uvloop's word for writing to one that ended a moment ago
            self.breaker.trip(cause_of(error))
        except RedisError as error:
            # Full, read-only, or a fault of ours: it answers, so no breaker.
            _log.exception("Redis refused", extra={"facts": {"cause": cause_of(error)}})
            self._excused_s = None
        return None, False

    def _is_excused(self, asked_s: float, cause: str) -> bool:
        """Where our own loop was late, the answer may be here, and it was us who didn't read it. That excuses whoever
        asked until this was noticed first, but nobody who asked later and had no answer either: a loop that is late
        again and again would never see an outage."""
        if self._heartbeat.was_late() and (self._excused_s is None or asked_s <= self._excused_s):
            self._excused_s = self._excused_s or time.monotonic()
            return True
        self._excused_s = None
        self.breaker.trip(cause)
        return False

    async def _probe(self) -> None:
        async with asyncio.timeout(ANSWER_S):
            await self._redis.ping()

    async def aclose(self) -> None:
        """Stop probing; the client is its owner's to close."""
        self._heartbeat.stop()
        await self.breaker.aclose()


def _noted(question: Callable[[Redis], Awaitable[T]], delivery: Delivery) -> Callable[[Redis], Awaitable[T]]:
    """The question, on a connection that is open before it is asked: what fails earlier was never sent."""

    async def ask(redis: Redis) -> T:
        async with redis.client() as connected:
            had_before, delivery.may_have_acted = delivery.may_have_acted, True
            try:
                return await question(connected)
            except ResponseError:  # Redis answers, and scripts write only what they may; one missed before may have
                delivery.may_have_acted = had_before
                raise

    return ask
