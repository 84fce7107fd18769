"""Whether Redis keeps what it acknowledges, as far as a process may ask, and whether it lets the process in at all.

Decides what is a risk and how often it is told. Must not know what is stored. `appendfsync` is told by CONFIG alone,
which shows passwords too, so neither edge nor node may ask for it: docs/operations.md has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from redis.asyncio import Redis

from shared.redis import FAILURES, REFUSALS, refusal_of
from shared.tasks import in_background

LOOK_EVERY_S = 60.0
_RETRY_S = 5.0
_ANSWER_S = 1.0
_log = logging.getLogger("b3os.redis")


def list_risks(info: Mapping[str, Any]) -> list[str]:
    """What is wrong with the settings of a Redis that says `info` of its persistence and its memory."""
    risks = []
    if str(info.get("aof_enabled")) != "1":
        risks.append("appendonly is not yes")
    if info.get("maxmemory_policy") != "noeviction":
        risks.append("maxmemory-policy is not noeviction")
    return risks


class Durability:
    """One process's eye on its Redis: a line in the log whenever there are other risks than before, or it refuses.

    Attributes:
        risks: as they were when Redis last told. refusal: the word with which it does not tell.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.risks: list[str] = []
        self.refusal: str | None = None

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look now and then while the body runs; at once first."""
        async with in_background(self._look_forever()):
            yield

    async def look(self) -> bool:
        """Whether Redis told."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                info = await self._redis.info("persistence", "memory")
        except FAILURES as error:
            self._note_refusal(refusal_of(error))
            return False
        self.refusal = None
        risks = list_risks(info)
        if risks and risks != self.risks:
            _log.warning("redis may lose what it acknowledged", extra={"facts": {"risks": risks}})
        self.risks = risks
        return True

    def _note_refusal(self, word: str | None) -> None:
        """Silence is told of by whoever needs an answer; what Redis says to all alike, a wrong password, here."""
        if word is not None and word != self.refusal:
            _log.error("Redis refused", extra={"facts": {"cause": word, "why": REFUSALS[word]}})
        self.refusal = word

    async def _look_forever(self) -> None:
        while True:
            has_told = False
            try:
                has_told = await self.look()
            except Exception:
                _log.exception("Redis's durability can't be looked at")
            await asyncio.sleep(LOOK_EVERY_S if has_told else _RETRY_S)
