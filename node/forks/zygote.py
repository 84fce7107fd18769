"""The program that forks once for each job: it has loaded what jobs need, and each fork ends with its job.

Decides how long a fork lives, and what the node hears of its end. A job can't see another's order or answer, and what
it breaks is its own. Must not know what is computed.

Runs as `python -m`; its standard input is the socket to the node, and it ends when that does. It has one thread: that
is what makes forks of it safe.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import NoReturn

from node.forks.jail import enter_jail
from node.forks.kernel import open_process
from node.forks.limits import Limits, impose_limits
from node.forks.memory_file import new_answer, read_all, write_all
from node.forks.messages import JOB, MOST_BYTES, READY, REPLY, Outcome, Request

_LOW_PRIORITY = 15
_EXIT_FAILED, _EXIT_LARGE = 1, 2
_SOCKET_FD, _STANDARD_FDS = 0, (1, 2)

Work = Callable[[bytes], bytes]
"""A job: its order to its answer. What it raises is the node's `DIED`, `MemoryError` its `LARGE`."""


@dataclass(slots=True)
class _Fork:
    """A job at work."""

    number: int
    pid: int
    answer: int
    started_s: float
    is_slow: bool = False
    is_late: bool = False


def serve(work: Work, limits: Limits, also_allowed: Set[str] = frozenset()) -> None:
    """Do the node's jobs until it goes.

    Args:
        work: has loaded and imported all that it needs: it can't open a file any more.
        also_allowed: system calls that its jail allows besides computing.
    """
    for sign in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the node decides when all ends
        signal.signal(sign, signal.SIG_IGN)
    logging.disable()  # to write a traceback, a fork would have to read files
    gc.collect()
    gc.freeze()  # else a fork that collects garbage writes to, and so copies, every page with objects
    with socket.socket(fileno=_SOCKET_FD) as control:
        zygote = _Zygote(control, work, limits, also_allowed)
        try:
            zygote.serve()
        finally:
            zygote.close()


class _Zygote:
    def __init__(self, control: socket.socket, work: Work, limits: Limits, also_allowed: Set[str]) -> None:
        self._control = control
        self._work = work
        self._limits = limits
        self._also_allowed = also_allowed
        self._pid = os.getpid()
        self._forks: dict[int, _Fork] = {}
        self._poll = select.poll()
        self._has_jail = self._try_jail()

    def serve(self) -> None:
        self._poll.register(self._control, select.POLLIN)
        # The socket's other end may live on in a process that the node started; the node's own end shows here.
        with contextlib.suppress(ProcessLookupError):
            self._poll.register(open_process(os.getppid()), select.POLLIN)
        self._control.send(READY.pack(self._has_jail))
        while True:
            for fd, _ in self._poll.poll(self._patience_ms()):
                if fd in self._forks:
                    self._finish(fd)
                elif fd != self._control.fileno() or not self._receive():
                    return
            self._watch()

    def close(self) -> None:
        """End what still runs."""
        for fork in self._forks.values():
            os.kill(fork.pid, signal.SIGKILL)
            os.waitpid(fork.pid, 0)

    def _receive(self) -> bool:
        """Do what is asked; False if the node has gone."""
        data, files, _, _ = socket.recv_fds(self._control, MOST_BYTES, 1)
        if not data:
            return False
        number, request = JOB.unpack(data)
        match Request(request), files:
            case Request.KILL, _:
                self._kill(number)
            case Request.WORK, [order]:
                self._start(number, order)
            case Request.WORK, _:  # there was no descriptor left for the order
                self._reply(number, Outcome.UNABLE)
        return True

    def _kill(self, number: int) -> None:
        for fork in self._forks.values():
            if fork.number == number:
                os.kill(fork.pid, signal.SIGKILL)

    def _start(self, number: int, order: int) -> None:
        try:
            answer = new_answer(self._limits.most_answer_bytes)
            try:
                self._fork(number, order, answer)
            except OSError:
                os.close(answer)
                raise
        except OSError:
            self._reply(number, Outcome.UNABLE)
        finally:
            os.close(order)

    def _fork(self, number: int, order: int, answer: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._do(order, answer)
        try:
            end = open_process(pid)
        except OSError:  # what can't be watched isn't done
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._forks[end] = _Fork(number, pid, answer, time.monotonic())
        self._poll.register(end, select.POLLIN)

    def _do(self, order: int, answer: int) -> NoReturn:
        """All of a fork's life."""
        status = _EXIT_FAILED
        try:
            _close_all_but(order, answer, *_STANDARD_FDS)
            data = read_all(order)
            os.close(order)
            impose_limits(self._limits, self._pid)
            if self._has_jail and not enter_jail(self._also_allowed):
                os._exit(_EXIT_FAILED)
            result = self._work(data)
            if len(result) > self._limits.most_answer_bytes:
                os._exit(_EXIT_LARGE)
            write_all(answer, result)
            os.ftruncate(answer, len(result))
            status = os.EX_OK
        except MemoryError:
            status = _EXIT_LARGE
        finally:
            os._exit(status)

    def _finish(self, end: int) -> None:
        fork = self._forks.pop(end)
        self._poll.unregister(end)
        os.close(end)
        _, status, used = os.wait4(fork.pid, 0)
        has_cpu_left = used.ru_utime + used.ru_stime < self._limits.cpu_s
        outcome = _outcome(status, is_late=fork.is_late, has_cpu_left=has_cpu_left)
        try:
            self._reply(
                fork.number,
                outcome,
                os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
                [fork.answer] if outcome is Outcome.DONE else [],
            )
        finally:
            os.close(fork.answer)

    def _reply(self, number: int, outcome: Outcome, sign: int = 0, files: list[int] | None = None) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the node has gone: seen at the next read
            socket.send_fds(self._control, [REPLY.pack(number, outcome, sign)], files or [])

    def _patience_ms(self) -> float | None:
        """How long nothing has to be done, unless something happens."""
        now_s = time.monotonic()
        limits = self._limits
        waits_s = [
            fork.started_s + min(limits.wall_s, math.inf if fork.is_slow else limits.patience_s) - now_s
            for fork in self._forks.values()
            if not fork.is_late
        ]
        return max(0.0, min(waits_s)) * 1000 + 1 if waits_s else None

    def _watch(self) -> None:
        now_s = time.monotonic()
        for fork in self._forks.values():
            age_s = now_s - fork.started_s
            if age_s > self._limits.wall_s and not fork.is_late:
                fork.is_late = True
                os.kill(fork.pid, signal.SIGKILL)
            elif age_s > self._limits.patience_s and not fork.is_slow:
                fork.is_slow = True
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, fork.pid, _LOW_PRIORITY)
                    # Only where nobody else wants the processor: the engine's threads wait for each other.
                    os.sched_setscheduler(fork.pid, os.SCHED_IDLE, os.sched_param(0))

    def _try_jail(self) -> bool:
        """Whether a fork can be jailed here."""
        pid = os.fork()
        if pid == 0:
            os._exit(0 if enter_jail() else 1)
        return os.waitpid(pid, 0)[1] == 0


def _outcome(status: int, *, is_late: bool, has_cpu_left: bool) -> Outcome:
    """What a fork's end means.

    Args:
        status: as `wait4` gives it. is_late: it was killed for its time by the clock.
    """
    if os.WIFSIGNALED(status):
        match os.WTERMSIG(status):
            case signal.SIGPROF:
                return Outcome.SLOW
            case signal.SIGKILL if is_late:
                return Outcome.LATE
            case (
                signal.SIGKILL
            ):  # not by us: by the kernel, at the second bound of time, or when it has no memory left
                return Outcome.LARGE if has_cpu_left else Outcome.SLOW
            case _:
                return Outcome.DIED
    by_exit = {os.EX_OK: Outcome.DONE, _EXIT_LARGE: Outcome.LARGE}
    return by_exit.get(os.WEXITSTATUS(status), Outcome.DIED)


def _close_all_but(*kept: int) -> None:
    last = -1
    for fd in sorted(kept):
        os.closerange(last + 1, fd)
        last = fd
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))
