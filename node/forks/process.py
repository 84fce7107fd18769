"""A running zygote, as the node sees it.

Decides that a job whose asker leaves is killed, that its place is free once its fork has ended, not before, and that
a zygote which says nothing for too long has stopped and is of no more use. Must not know when one is started anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from node.forks.memory_file import read_all, write_order
from node.forks.messages import JOB, MOST_BYTES, READY, REPLY, Outcome, Request
from node.shares import Shares

_CLOSE_S = 1.0
_log = logging.getLogger("b3os.forks")

T = TypeVar("T")


class Gone(Exception):
    """The zygote ended before the answer, or doesn't start."""


@dataclass(slots=True)
class Killed(Exception):
    """The fork ended without an answer."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _Reply:
    """What the zygote told of a job; its answer's descriptor belongs to whoever takes the reply."""

    outcome: Outcome
    sign: int = 0
    answer: int | None = None

    def discard(self) -> None:
        if self.answer is not None:
            os.close(self.answer)


class ZygoteProcess:
    """Does jobs, at most so many at once; `start` makes one."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        control: socket.socket,
        most_forks: int,
        threads: ThreadPoolExecutor,
        answer_s: float,
    ) -> None:
        self.is_gone = False
        self.has_jail = False
        self.pid = process.pid
        self._process = process
        self._control = control
        self._threads = threads
        self._answer_s = answer_s
        self._places = Shares(most_forks, most_forks)
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[_Reply | None]] = {}
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[bool] = self._loop.create_future()
        self._ending: asyncio.Task[None] | None = None
        self._loop.add_reader(control.fileno(), self._read)

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        most_forks: int,
        threads: ThreadPoolExecutor,
        within_s: float,
        answer_s: float,
    ) -> ZygoteProcess:
        """One that is ready.

        Args:
            within_s: how long that may take. answer_s: how long any job may.

        Raises:
            Gone: it ended, or isn't ready in time.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env=dict(environment),
                )
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise Gone from None
            raise
        zygote = cls(process, ours, most_forks, threads, answer_s)
        try:
            zygote.has_jail = await asyncio.wait_for(asyncio.shield(zygote._ready), within_s)
        except BaseException as error:
            await zygote.close()
            if isinstance(error, TimeoutError):
                raise Gone from None
            raise
        return zygote

    async def ask(self, payer: str, parts: Sequence[bytes | str], read: Callable[[bytes], T]) -> T:
        """The answer to an order.

        Args:
            payer: whose turn it is where many wait.
            parts: the order in pieces, so that nobody has to join them.
            read: what is made of the answer, in a thread, as all copying is. What it raises comes out.

        Raises:
            Killed: it has no answer, or the zygote says nothing any more. Gone: the zygote ended.
        """
        await self._places.acquire(payer)
        try:
            order = await self._in_thread(functools.partial(write_order, parts), os.close)
        except BaseException as error:
            self._places.release(payer)
            if isinstance(error, OSError):
                raise Killed(Outcome.UNABLE) from None
            raise
        reply = await self._reply_to(payer, order)
        if reply is None:
            raise Gone
        if reply.sign:
            _log.info("a fork was killed", extra={"facts": {"outcome": reply.outcome.name, "signal": reply.sign}})
        if reply.answer is None:
            raise Killed(reply.outcome)
        return await self._in_thread(functools.partial(_take, reply.answer, read), lambda value: None)

    async def close(self) -> None:
        """End it, and wait for that."""
        self._lose()
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _reply_to(self, payer: str, order: int) -> _Reply | None:
        """What is said of a job, None if nothing any more. Closes the order."""
        number = next(self._numbers)
        reply = self._loop.create_future()
        patience = self._loop.call_later(self._answer_s, self._give_up, number)
        reply.add_done_callback(lambda _: patience.cancel())
        reply.add_done_callback(lambda _: self._places.release(payer))
        self._replies[number] = reply
        try:
            self._send(number, Request.WORK, [order])
        finally:
            os.close(order)
        try:
            return await asyncio.shield(reply)
        except asyncio.CancelledError:
            reply.add_done_callback(_discard)
            self._send(number, Request.KILL)
            raise

    def _give_up(self, number: int) -> None:
        """No job takes so long: a zygote that is alive would have killed it. A stopped one doesn't end by itself."""
        if (reply := self._replies.pop(number, None)) is None:
            return
        _log.error("a zygote has stopped and is replaced", extra={"facts": {"pid": self.pid}})
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        reply.set_result(_Reply(Outcome.UNABLE))
        self._lose()

    def _send(self, number: int, request: Request, files: Sequence[int] = ()) -> None:
        if self.is_gone:
            self._answer_all()
            return
        try:
            socket.send_fds(self._control, [JOB.pack(number, request)], files)
        except OSError:  # also when it is full, which takes a zygote that has stopped
            self._lose()

    def _read(self) -> None:
        try:
            while True:
                data, files, _, _ = socket.recv_fds(self._control, MOST_BYTES, 1)
                if not data:
                    break
                self._take_in(data, files)
        except BlockingIOError:
            return
        except OSError:
            pass
        self._lose()

    def _take_in(self, data: bytes, files: list[int]) -> None:
        if not self._ready.done():
            (has_jail,) = READY.unpack(data)
            self._ready.set_result(bool(has_jail))
            return
        number, outcome, sign = REPLY.unpack(data)
        if outcome == Outcome.DONE and not files:  # there was no descriptor left for the answer
            outcome = Outcome.UNABLE
        self._replies.pop(number).set_result(_Reply(Outcome(outcome), sign, files[0] if files else None))

    def _lose(self) -> None:
        """It is of no more use: nobody waits for it, and it ends."""
        if not self.is_gone:
            self.is_gone = True
            self._loop.remove_reader(self._control.fileno())
            self._control.close()
            self._ending = asyncio.create_task(self._end())
        if not self._ready.done():
            self._ready.set_exception(Gone())
            self._ready.exception()  # so that asyncio doesn't complain where nobody waits for it
        self._answer_all()

    def _answer_all(self) -> None:
        while self._replies:
            self._replies.popitem()[1].set_result(None)

    async def _end(self) -> None:
        # It ends by itself, and its forks with it; while it is still loading, it doesn't look at its socket.
        if self._ready.exception() is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _CLOSE_S)
                return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _in_thread(self, work: Callable[[], T], discard: Callable[[T], object]) -> T:
        """Run it, to its end even if nobody waits any more: a descriptor in use must not be closed."""
        future = self._loop.run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: None if done.exception() else discard(done.result()))
            raise
        finally:
            del future  # what it raised would lead back to it through this frame, and keep all that is in the others


def _take(answer: int, read: Callable[[bytes], T]) -> T:
    try:
        data = read_all(answer)
    finally:
        os.close(answer)
    return read(data)


def _discard(reply: asyncio.Future[_Reply | None]) -> None:
    if (result := reply.result()) is not None:
        result.discard()
