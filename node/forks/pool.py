"""How the node has work done in forks of a zygote.

Decides when a zygote is started, how many may wait for it, and what it gets to see of the node's environment. Must
not know what is computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from node.forks.process import Gone, ZygoteProcess

_PASSED_ON = frozenset({"PATH", "HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "TMPDIR"})
"""Of the environment; the rest may hold secrets."""
_COPIERS = 2
"""Threads that copy orders and answers."""
_ANSWER_S = 45.0
"""No job's time by the clock is so long."""
_log = logging.getLogger("b3os.forks")

T = TypeVar("T")


class Busy(Exception):
    """Too many wait already."""


class Pool:
    """Has orders carried out.

    Args:
        module: what is run as `python -m`; it calls `node.forks.zygote.serve`. arguments: of its command line.
        most_forks: at work at once. most_waiting: for one of these.
        start_s: how long it may load.
        answer_s: after which it has to have said what became of a job, whatever did; else it is replaced.
        passed_on: variables of the environment that it gets besides the common ones.
        environment: variables that it gets in any case.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        most_forks: int,
        most_waiting: int,
        start_s: float,
        answer_s: float = _ANSWER_S,
        passed_on: frozenset[str] = frozenset(),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = (sys.executable, "-m", module, *arguments)
        self._module = module
        self._most_forks = most_forks
        self._most_asking = most_forks + most_waiting
        self._start_s, self._answer_s = start_s, answer_s
        self._passed_on = _PASSED_ON | passed_on
        self._environment = dict(environment or {})
        self._threads = ThreadPoolExecutor(_COPIERS, thread_name_prefix="forks")
        self._process: ZygoteProcess | None = None
        self._starting = asyncio.Lock()
        self._asking: Counter[str] = Counter()
        self._is_closed = False
        self._has_warned = False

    @property
    def pid(self) -> int | None:
        """Of the zygote that was started last."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Have the zygote ready. Else the first order waits for it.

        Raises:
            Gone: it doesn't start.
        """
        await self._ready()

    async def ask(self, *parts: bytes | str, read: Callable[[bytes], T], payer: str = "") -> T:
        """What is read from the answer to an order. Whoever is cancelled has the work killed.

        Args:
            parts: the order in pieces, so that nobody has to join them; text as ASCII.
            read: what is made of the answer, in a thread, as all copying is. What it raises comes out.
            payer: who is next where many wait is who has fewest at work.

        Raises:
            Busy: too many wait, of all or of this payer. Gone: the zygote ended twice, or doesn't start.
            Killed: the work has no answer.
        """
        if self._asking.total() >= self._most_asking or self._asking[payer] >= self._most_asking // 2:
            raise Busy
        self._asking[payer] += 1
        try:
            for _ in range(2):
                process = await self._ready()
                with contextlib.suppress(Gone):
                    return await process.ask(payer, parts, read)
            raise Gone
        finally:
            self._asking -= Counter([payer])  # which forgets who is at zero

    async def close(self) -> None:
        """End the zygote and all work."""
        self._is_closed = True
        if self._process is not None:
            await self._process.close()
        self._threads.shutdown(wait=False)

    async def _ready(self) -> ZygoteProcess:
        async with self._starting:
            self._check_open()
            if self._process is None or self._process.is_gone:
                process = await ZygoteProcess.start(
                    self._command, self._visible(), self._most_forks, self._threads, self._start_s, self._answer_s
                )
                try:
                    self._check_open()
                except Gone:
                    await process.close()
                    raise
                self._process = process
                self._warn_without_jail(process)
            return self._process

    def _check_open(self) -> None:
        if self._is_closed:
            raise Gone

    def _visible(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in self._passed_on}
        # Else C code that tells the time, to complain of something, looks for a file with the zone: forks mayn't.
        return {**kept, "TZ": "UTC0", **self._environment}

    def _warn_without_jail(self, process: ZygoteProcess) -> None:
        if not process.has_jail and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "this kernel takes no filter of system calls; forks are bounded, but not jailed",
                extra={"facts": {"module": self._module}},
            )
