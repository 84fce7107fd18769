"""Follow the store's invalidations, and distrust the caches whenever some may have been missed.

Decides when a subscription counts as alive. Must not know what a key or a session is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Protocol

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from edge.auth.redis_names import EVERYTHING, INVALIDATIONS
from shared.redis import FAILURES, cause_of, refusal_of

SILENCE_S = 2.0
RECONNECT_S = 0.25
_log = logging.getLogger("b3os.edge.invalidations")


class Forgetful(Protocol):
    """A cache, as far as it is spoken to here."""

    def invalidate(self, digest: str) -> None:
        """Forget what is under a digest."""

    def clear(self) -> None:
        """Forget everything."""


class Invalidations:
    """One subscription that drops entries of all caches; a digest is in one of them at most."""

    def __init__(self, redis: Redis, *caches: Forgetful) -> None:
        self._redis = redis
        self._caches = caches
        self.is_connected = False
        self._refusal: str | None = None

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow in the background while the body runs."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            # Again and again: a cancellation that comes while redis-py connects under uvloop may be swallowed.
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=0.1)

    async def _follow(self) -> None:
        while True:
            try:
                async with self._redis.pubsub() as subscription:
                    await subscription.subscribe(INVALIDATIONS)
                    await self._listen(subscription)
            except FAILURES as error:
                self._note_loss(error)
            except Exception:
                _log.exception("subscription failed")
            self.is_connected = False
            await asyncio.sleep(RECONNECT_S)

    def _note_loss(self, error: Exception) -> None:
        """Told when it is lost, and where Redis refuses it for another reason than before, at the start too."""
        refusal = refusal_of(error)
        if self.is_connected or (refusal is not None and refusal != self._refusal):
            _log.warning("subscription lost", extra={"facts": {"cause": cause_of(error)}})
        self._refusal = refusal

    async def _listen(self, subscription: PubSub) -> None:
        """Apply messages; ping in silence, and raise where even that is not answered."""
        is_ping_due = True
        while True:
            message = await subscription.get_message(ignore_subscribe_messages=False, timeout=SILENCE_S)
            if message is not None:
                self._apply(message["type"], message["data"])
                is_ping_due = True
            elif is_ping_due:
                await subscription.ping()
                is_ping_due = False
            else:
                raise TimeoutError

    def _apply(self, kind: str, data: object) -> None:
        if kind == "subscribe":
            # redis-py reconnects and subscribes again by itself: this message is all that tells of the gap.
            self._clear()
            self.is_connected = True
        elif kind == "message" and data == EVERYTHING:
            self._clear()
        elif kind == "message":
            for cache in self._caches:
                cache.invalidate(str(data))

    def _clear(self) -> None:
        for cache in self._caches:
            cache.clear()
