"""One request's reservation, from admission to its bill, whatever happens in between.

Decides that every reservation of this process is renewed while it is in use and settled when it is not: finished,
refused, failed or cancelled. Must not know HTTP; what the client was told, the handler notes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from node.engine.port import Usage
from node.limits.bill import Ending, build_settlement
from node.limits.books import Books
from node.limits.limiter import (
    Adjustment,
    Admission,
    Admitted,
    AlreadySettled,
    Charge,
    Limiter,
    Needs,
    Progress,
    Refusal,
    Subject,
    Unanswered,
    Unavailable,
)
from node.limits.told import build_refusal
from node.limits.waits import Waits
from shared.errors import NODE_UNAVAILABLE, ApiError
from shared.hop import NOT_STARTED
from shared.request_log import Outcome
from shared.tasks import end_task
from shared.timing import Phases

RENEW_EVERY_S = 10.0
CLIENT_GONE = 499
_STOPPED: tuple[Outcome, int, str] = ("failed", NODE_UNAVAILABLE.status, NODE_UNAVAILABLE.code)
"""A node that stops cancels what it did not end in time; the edge tells the client so."""
_log = logging.getLogger("b3os.settlement")


@dataclass(slots=True)
class Notes:
    """What the handler learns on the way, for the request log. What it leaves open follows from how the body ended.

    Attributes:
        status: the HTTP status that was sent.
    """

    outcome: Outcome | None = None
    status: int | None = None
    error_code: str | None = None
    stop_reason: str | None = None
    phases: Phases | None = None


@dataclass(slots=True)
class Desk:
    """Lets requests in and sees them out, for one node."""

    limiter: Limiter
    books: Books
    renew_every_s: float = RENEW_EVERY_S
    waits: Waits = field(default_factory=Waits)
    is_stopping: bool = False
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def open(
        self, subject: Subject, needs: Needs, phases: Phases | None = None, *, attempt: int = 1
    ) -> Reservation | Refusal:
        """Admit; the reservation is then the caller's to enter, at once.

        A caller that is cancelled while Redis answers leaves nothing behind, nor does one that hears no answer.

        Args:
            attempt: above 1, another node may have let it in, which only Redis knows.
        """
        if attempt == 1 and (refusal := self.waits.refuse(subject, needs)) is not None:
            return refusal
        asked: asyncio.Task[Admission] = self.start(self.limiter.admit(subject, needs, attempt))
        notes = Notes(phases=phases)
        try:
            admission = await asyncio.shield(asked)
        except asyncio.CancelledError as error:
            self.start(self._undo(asked, notes, error))
            raise
        self.waits.note(subject, needs, admission)
        match admission:
            case Admitted():
                return Reservation(self, admission, notes)
            case Unanswered():
                notes.outcome = "refused"
                self.start(self._undo(asked, notes, build_refusal(Unavailable(), subject)))
                return Unavailable()
            case _:
                return admission

    async def _undo(self, asked: asyncio.Task[Admission], notes: Notes, error: BaseException) -> None:
        """Bill nothing for what was, or may have been, let in for nobody."""
        admission = await asked
        if isinstance(admission, Admitted):
            await Reservation(self, admission, notes).settle(error)
        elif isinstance(admission, Unanswered):
            await Reservation(self, Admitted(admission.hold), notes, is_certain=False).settle(error)

    def stop(self) -> None:
        """From here on it is the node that ends what runs, and no client that left."""
        self.is_stopping = True

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Work that no caller's cancellation reaches."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Wait for what is being settled; each takes about a second at most."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))


class Reservation:
    """A context manager around all that is done for an admitted request."""

    def __init__(self, desk: Desk, admitted: Admitted, notes: Notes, *, is_certain: bool = True) -> None:
        """`is_certain` is whether the store said so."""
        self.admitted, self.notes = admitted, notes
        self._desk, self._hold, self._is_certain = desk, admitted.hold, is_certain
        self._usage: Usage | None = None
        self._has_prefilled = False
        self._image_bytes = 0
        self._wake = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def adjust(self, needs: Needs) -> Adjustment:
        """Reserve what the rendered prompt needs."""
        return await self._desk.limiter.adjust(self._hold, needs)

    async def charge_images(self, more_bytes: int) -> Charge:
        """Bytes of a remote image have arrived, of whatever use they turn out to be."""
        self._image_bytes += more_bytes
        return await self._desk.limiter.charge_images(self._hold, self._image_bytes)

    def follow(self, usage: Usage) -> None:
        """A generation begins; its usage is kept current by the engine."""
        self._usage = usage

    def note_prefilled(self) -> None:
        """The prompt was computed: from here on there is something to bill. It is told to Redis at once, since a
        sweeper knows only what it was told."""
        self._has_prefilled = True
        self._wake.set()

    def progress(self) -> Progress:
        """How far it came."""
        usage = self._usage
        if usage is None:
            return Progress()
        return Progress(
            self._has_prefilled or usage.output_tokens > 0,
            usage.input_tokens,
            usage.output_tokens,
            usage.cached_tokens,
        )

    async def __aenter__(self) -> Reservation:
        self._renewing = asyncio.create_task(self._renew_forever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Settle, unless that was done, and only then let a cancellation through."""
        await self._settle_once(error)

    async def finish(self) -> None:
        """Settle within the body: all that is to be billed has happened, and nothing may be held any more."""
        await self._settle_once(None)

    async def _settle_once(self, error: BaseException | None) -> None:
        if self._settling is None:
            self._settling = self._desk.start(self.settle(error))
        cancelled: asyncio.CancelledError | None = None
        while not self._settling.done():
            try:
                await asyncio.wait({self._settling})
            except asyncio.CancelledError as again:
                cancelled = again
        if cancelled is not None:
            raise cancelled

    async def settle(self, error: BaseException | None) -> None:
        """Bill it; `error` is what ended it early."""
        if self._renewing is not None:
            await end_task(self._renewing)
        if isinstance(error, ApiError) and NOT_STARTED in error.headers:
            await self._release()
            return
        settlement = build_settlement(
            self._hold, self.progress(), self._ending(error), self._image_bytes, is_certain=self._is_certain
        )
        booking = await self._desk.books.book(settlement)
        if isinstance(booking, AlreadySettled):
            _log.warning("a request was settled before", extra={"facts": {"request": self._hold.subject.request_id}})

    async def _release(self) -> None:
        """Another node may be asked the same at any moment, so there must be no trace of it here."""
        if self._renewal is not None:
            await asyncio.wait({self._renewal})  # it would write the reservation again: there is no `done` to stop it
        try:
            await self._desk.limiter.release(self._hold)
        except Exception:
            _log.exception("a release failed")

    async def _renew_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._desk.renew_every_s):  # `wait_for` may lose a cancellation
                    await self._wake.wait()
            self._wake.clear()
            # One that is on its way goes on alone: to cancel it may take redis-py 0.1 s, and the bill would wait.
            self._renewal = self._desk.start(self._renew())
            await asyncio.shield(self._renewal)

    async def _renew(self) -> None:
        try:
            await self._desk.limiter.renew(self._hold, self.progress())
        except Exception:
            _log.exception("a renewal failed")

    def _ending(self, error: BaseException | None) -> Ending:
        is_ours = self._desk.is_stopping and isinstance(error, asyncio.CancelledError)
        outcome, status, code = _STOPPED if is_ours else _read_end(error, has_begun=self.notes.status is not None)
        phases = self.notes.phases
        phases_ms = {} if phases is None else {name: round(ms, 2) for name, ms in phases.durations_ms.items()}
        return Ending(
            outcome=self.notes.outcome or outcome,
            status=self.notes.status or status,
            error_code=self.notes.error_code or code,
            stop_reason=self.notes.stop_reason,
            ttft_ms=phases_ms.get("ttft"),
            total_ms=None if phases is None else round(phases.elapsed_ms(), 2),
            phases_ms=phases_ms,
        )


def _read_end(error: BaseException | None, *, has_begun: bool) -> tuple[Outcome, int, str | None]:
    """Outcome, status and code of a body that ended so, where the handler noted nothing else."""
    match error:
        case None:
            return "finished", 200, None
        case ApiError():
            refused = not has_begun and error.condition.status < 500
            return "refused" if refused else "failed", error.condition.status, error.condition.code
        case asyncio.CancelledError() | GeneratorExit() | ConnectionError() | TimeoutError():
            return "client_gone", CLIENT_GONE, None
        case _:
            return "failed", 500, "internal"
