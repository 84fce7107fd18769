"""The life of the engine: started off the loop, watched, and started again when it dies.

Decides in which state the node is and what a request hears meanwhile. Must not know vLLM.
"""

from __future__ import annotations

import asyncio
import logging

from node.engine.port import Engine, EngineFactory, EngineLoad, EngineState
from shared.errors import BACKEND_UNAVAILABLE, ApiError

FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0
_log = logging.getLogger("b3os.engine")

_WORDS = {"starting": "is starting", "failed": "is restarting", "draining": "is shutting down"}


class Supervisor:
    """Holds one engine, or the reason why there is none."""

    def __init__(self, factory: EngineFactory, *, retry_after_s: int = 5) -> None:
        self._factory = factory
        self._retry_after_s = retry_after_s
        self._engine: Engine | None = None
        self._task: asyncio.Task[None] | None = None
        self.state: EngineState = "starting"

    def start(self) -> None:
        """Begin to load the model; returns at once."""
        self._task = asyncio.create_task(self._run())

    def engine(self) -> Engine:
        """The engine, if it takes requests now.

        Raises:
            ApiError: `BACKEND_UNAVAILABLE`, with the seconds after which to come back.
        """
        if self.state == "ready" and self._engine is not None:
            return self._engine
        word = _WORDS.get(self.state, "is stopped")
        seconds = self._retry_after_s
        message = f"The model runtime {word}; retry in {seconds} seconds"
        raise ApiError(BACKEND_UNAVAILABLE, message, retry_after_s=seconds)

    def running(self) -> int:
        """Requests in the engine, for `/readyz`."""
        return 0 if self._engine is None else self._engine.unfinished_requests()

    def load(self) -> EngineLoad | None:
        """What the engine's scheduler told last, if there is an engine and it tells."""
        return None if self._engine is None else self._engine.load()

    @property
    def context_tokens(self) -> int | None:
        """The window of the loaded model; None while there is none."""
        return None if self._engine is None else self._engine.context_tokens

    @property
    def takes_images(self) -> bool:
        """Whether the loaded model does; no while there is none."""
        return self._engine is not None and self._engine.max_image_side_px is not None

    def drain(self) -> None:
        """Take no more requests; those that run go on."""
        self.state = "draining"

    async def stop(self) -> None:
        """End the engine. A start under way is abandoned: its thread can't be interrupted."""
        self.state = "stopped"
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._discard()

    async def _run(self) -> None:
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                self._engine = await self._factory()
            except Exception:
                _log.exception("the engine did not start")
            else:
                backoff_s = FIRST_BACKOFF_S
                self._become("ready")
                cause = await self._engine.wait_until_dead()
                _log.error("the engine died", extra={"facts": {"cause": cause}})
            self._become("failed")
            await self._discard()
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)

    def _become(self, state: EngineState) -> None:
        if self.state not in ("draining", "stopped"):
            self.state = state
        _log.info("engine state", extra={"facts": {"state": self.state}})

    async def _discard(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        try:
            await engine.shutdown()
        except Exception:  # a dead engine may not end well; the next one must start all the same
            _log.exception("the engine did not shut down")
