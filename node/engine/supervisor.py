"""The life of the engine: started off the loop, watched, and started again when it dies or hangs.

Decides in which state the node is and what a request hears meanwhile. Must not know vLLM.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from node.engine.history import History, Watchdog
from node.engine.port import Engine, EngineFactory, EngineLoad, EngineState
from node.handover import Handover
from shared.errors import BACKEND_UNAVAILABLE, ApiError, retry_in
from shared.hop import NOT_STARTED
from shared.tasks import end_task

START_S = 1800.0
SILENCE_S = 120.0
WATCH_EVERY_S = 1.0
ENDS_WITHIN_S = 20.0
"""What a start may take to end once it is told to, and an engine to be dead once it is killed."""
LONGEST_REASON = 300
_log = logging.getLogger("b3os.engine")

_WORDS = {
    "starting": "is starting",
    "restarting": "is restarting",
    "failed": "is not set up",
    "draining": "is shutting down",
}


class Supervisor:
    """Holds one engine, or the reason why there is none.

    Args:
        start_s: longest start. silence_s: how long an engine with requests may go without a step.

    Attributes:
        state: `failed` is an engine that never works, tried seldom; `draining` takes no more requests.
        handover: the requests under way.
        reason: why there is none; None while there is.
    """

    def __init__(
        self,
        factory: EngineFactory,
        *,
        start_s: float = START_S,
        silence_s: float = SILENCE_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factory, self._clock_s = factory, clock_s
        self._start_s, self._silence_s = start_s, silence_s
        self._history = History()
        self._engine: Engine | None = None
        self._task: asyncio.Task[None] | None = None
        self.state: EngineState = "starting"
        self.reason: str | None = None
        self.handover = Handover(self.refusal)

    def start(self) -> None:
        """Begin to load the model; returns at once."""
        self._task = asyncio.create_task(self._run())

    def engine(self) -> Engine:
        """The engine, if it takes requests now.

        Raises:
            ApiError: `BACKEND_UNAVAILABLE`, with the seconds after which to come back. Nothing was begun.
        """
        if self.state == "ready" and self._engine is not None:
            return self._engine
        raise self.refusal()

    def refusal(self) -> ApiError:
        """What a request hears that wasn't begun."""
        seconds = self._history.retry_after_s(self._clock_s())
        word = _WORDS.get(self.state, "is stopped")
        message = f"The model runtime {word}; {retry_in(seconds)}"
        return ApiError(BACKEND_UNAVAILABLE, message, retry_after_s=seconds, headers={NOT_STARTED: "1"})

    def _back_in_s(self) -> int:
        """Whose answer fails with its engine may hear of its end before this does."""
        told = self._history.forecast_s if self.state == "ready" else self._history.retry_after_s
        return told(self._clock_s())

    def load(self) -> EngineLoad:
        """What the engine does; nothing while there is none."""
        return EngineLoad() if self._engine is None else self._engine.load()

    def running(self) -> int:
        """Requests in the engine, those that wait there included."""
        return 0 if self._engine is None else self._engine.unfinished_requests()

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return self._history.restarts

    @property
    def context_tokens(self) -> int | None:
        """The window of the loaded model; None while there is none."""
        return None if self._engine is None else self._engine.context_tokens

    @property
    def takes_images(self) -> bool:
        """Whether the loaded model does; no while there is none."""
        return self._engine is not None and self._engine.max_image_side_px is not None

    def drain(self) -> None:
        """Take no more requests, and send back those that wait; those that run go on."""
        self.state = "draining"
        self.handover.close(self.load().waiting)

    async def drained(self, within_s: float) -> int:
        """Wait until what runs has ended, and end what runs longer than `within_s` seconds, each with an error.

        Returns how many ran longer.
        """
        await self.handover.wait_until_idle(within_s)
        longer = self.handover.under_way
        if longer and self._engine is not None and self._task is not None:
            await _kill(self._engine)
            await asyncio.wait({self._task}, timeout=ENDS_WITHIN_S)
        return longer

    async def stop(self) -> None:
        """End the engine. A start under way is abandoned: its thread can't be interrupted."""
        self.state = "stopped"
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=1)
        await self._discard()

    async def _run(self) -> None:
        while True:
            self._history.note_start(self._clock_s())
            if (engine := await self._start()) is not None:
                await self._live(engine)
            else:
                self._note_end(has_answered=False)
            await self._discard()
            if self.state in ("draining", "stopped"):
                return
            await asyncio.sleep(self._history.pause_s)

    async def _start(self) -> Engine | None:
        """An engine, or None and the reason for it."""
        starting = asyncio.ensure_future(self._factory())
        try:
            done, _ = await asyncio.wait({starting}, timeout=self._start_s)
            if not done:
                self.reason = f"its start took longer than {self._start_s:g} s"
                starting.cancel()
                await asyncio.wait({starting}, timeout=ENDS_WITHIN_S)
                if not starting.done():  # two at once would take each other's memory
                    _log.critical("the engine's start can't be ended; restart the node")
                    self._become("failed")
                    await asyncio.wait({starting})
            self._engine = None if starting.cancelled() else starting.result()
        except asyncio.CancelledError:
            starting.cancel()
            await asyncio.wait({starting})
            raise
        except Exception as error:
            self.reason = _name(error)
            _log.exception("the engine did not start")
        else:
            if self._engine is None:
                _log.error("the engine did not start", extra={"facts": {"cause": self.reason}})
        return self._engine

    async def _live(self, engine: Engine) -> None:
        self._history.note_ready(self._clock_s())
        engine.back_in_s = self._back_in_s
        self.reason = None
        self._become("ready")
        try:
            self.reason = await self._watch(engine)
        except Exception as error:  # unwatched it would be taken for ready for ever
            self.reason = _name(error)
            _log.exception("the engine can't be watched")
            await _kill(engine)
        _log.error("the engine died", extra={"facts": {"cause": self.reason}})
        has_answered = False
        with contextlib.suppress(Exception):
            has_answered = engine.load().answers > 0
        self._note_end(has_answered=has_answered)

    async def _watch(self, engine: Engine) -> str:
        """Return the cause of its end."""
        dying = asyncio.create_task(engine.wait_until_dead())
        watchdog = Watchdog(self._silence_s)
        try:
            while not dying.done():
                await asyncio.wait({dying}, timeout=WATCH_EVERY_S)
                load = engine.load()
                if not dying.done() and watchdog.is_stuck(load.held, load.steps, self._clock_s()):
                    await _kill(engine)
                    await asyncio.wait({dying}, timeout=ENDS_WITHIN_S)
                    return f"it computed nothing for {self._silence_s:g} s, with {load.held} requests in hand"
            return "nobody waits for its end" if dying.cancelled() else dying.result()
        finally:
            await end_task(dying)

    def _note_end(self, *, has_answered: bool) -> None:
        self._history.note_end(self._clock_s(), has_answered=has_answered)
        self._become("failed" if self._history.has_given_up else "restarting")

    def _become(self, state: EngineState) -> None:
        if self.state not in ("draining", "stopped"):
            self.state = state
        facts = {"state": self.state, "restarts": self.restarts, "reason": self.reason}
        _log.info("engine state", extra={"facts": facts})

    async def _discard(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        try:
            await engine.shutdown()
        except Exception:  # a dead engine may not end well; the next one must start all the same
            _log.exception("the engine did not shut down")


async def _kill(engine: Engine) -> None:
    try:
        await engine.kill()
    except Exception:  # what is left of it is for its shutdown
        _log.exception("the engine was not killed")


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST_REASON]
