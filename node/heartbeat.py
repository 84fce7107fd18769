"""Tells in Redis that this node lives, where it is and what it does.

Decides when: every two seconds, at once when its state changes, and a last time when it stops. Must not know what
edges do with it, nor what another process under its id means: `namesake`. A Redis that is away is asked again and
again, and told of once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version

from redis.asyncio import Redis

from node.engine.supervisor import Supervisor
from node.namesake import Namesake
from shared.heartbeat import EVERY_S, Heartbeat, ModelCard, NodeState, send_heartbeat, send_leave
from shared.redis import FAILURES, cause_of
from shared.tasks import in_background

LOOK_EVERY_S = 0.1
"""How soon a change of state is told."""
RETRY_S = 0.5
_ANSWER_S = 1.0
_VERSION = version("b3os")
_log = logging.getLogger("b3os.node.heartbeat")


class Pulse:
    """One node's.

    Attributes:
        boot: which process of its id this is. missed: heartbeats that did not reach Redis since one did.
        told: the state that was told last, or that Redis could not be told.
    """

    def __init__(
        self,
        redis: Redis,
        node_id: str,
        url: str,
        card: Callable[[], ModelCard],
        supervisor: Supervisor,
        clock: Callable[[], float],
    ) -> None:
        self._redis, self._node_id, self._url = redis, node_id, url
        self._card, self._supervisor = card, supervisor
        self._clock = clock
        self.boot = secrets.token_hex(8)
        self._namesake = Namesake(node_id, url)
        self._beats = 0
        self.told: NodeState | None = None
        self._next_s = clock()
        self.missed = 0

    @contextlib.asynccontextmanager
    async def beating(self, listens: asyncio.Event) -> AsyncIterator[None]:
        """While the body runs, once this node can be reached; then be in the registry no more.

        Before that its place may be another's: a second process of one id and port ends without a word here.
        """
        try:
            async with in_background(self._beat_forever(listens)):
                yield
        finally:
            if self._beats:
                await self._leave()

    def build(self) -> Heartbeat:
        """What is told now."""
        load = self._supervisor.load()
        return Heartbeat(
            id=self._node_id,
            url=self._url,
            boot=self.boot,
            beat=self._beats,
            state=self._supervisor.state,
            models=(self._card(),),
            running=load.running,
            waiting=load.waiting,
            cache_usage=load.cache_usage,
            version=_VERSION,
        )

    async def beat(self) -> bool:
        """Tell once; whether it was heard."""
        self._beats += 1
        heartbeat = self.build()
        try:
            async with asyncio.timeout(_ANSWER_S):
                other = await send_heartbeat(self._redis, heartbeat)
        except FAILURES as error:
            self._note_miss(error)
            return False
        if self.missed:
            _log.info("the registry hears again", extra={"facts": {"missed": self.missed}})
        self.missed = 0
        self._namesake.note(other)
        return True

    def _note_miss(self, error: Exception) -> None:
        self.missed += 1
        if self.missed == 1:
            _log.warning("the registry does not hear", extra={"facts": {"cause": cause_of(error)}})

    async def _beat_forever(self, listens: asyncio.Event) -> None:
        await listens.wait()
        while True:
            state = self._supervisor.state
            if self._clock() >= self._next_s or state != self.told:
                await self._try()
                self.told = state
            await asyncio.sleep(LOOK_EVERY_S)

    async def _try(self) -> None:
        is_heard = False
        try:
            is_heard = await self.beat()
        except Exception:
            _log.exception("a heartbeat failed")
        self._next_s = self._clock() + (EVERY_S if is_heard else RETRY_S)

    async def _leave(self) -> None:
        last = Heartbeat(
            id=self._node_id,
            url=self._url,
            boot=self.boot,
            beat=self._beats + 1,
            state="stopped",
            models=(),
            version=_VERSION,
        )
        try:
            async with asyncio.timeout(_ANSWER_S):
                await send_leave(self._redis, last)
        except FAILURES as error:
            _log.info("the registry did not hear the end", extra={"facts": {"cause": cause_of(error)}})
