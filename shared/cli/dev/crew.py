"""The children of `b3os dev`: all in one process group, none of which outlives it.

Decides the order and the deadlines of their end. Must not know what they serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from shared.cli.dev import guardian
from shared.cli.dev.errors import AlreadyTold, DevError, parse_reason
from shared.cli.dev.files import open_log

# After kill -9 of `b3os dev`: children get this long between SIGTERM and SIGKILL, so that all is over within 10 s.
ORPHANS_GRACE_S = 5.0
_GROUP_ENDS_WITHIN_S = 3.0
_GUARDIAN_POLL_S = 1.0


@dataclass(slots=True)
class Child:
    """A server that runs until it is stopped.

    Attributes:
        log_offset: where its own lines begin.
        stop_within_s: from SIGTERM to SIGKILL; may change, since a server that has no work yet needs no time.
    """

    name: str
    process: asyncio.subprocess.Process
    log: Path
    log_offset: int
    stop_within_s: float

    def epitaph(self) -> str:
        """One sentence: who died, how, why as far as it said so, and where to read on."""
        code = self.process.returncode or 0
        if code < 0:  # nobody says something about being killed, so its last words are about something else
            return f"the {self.name} was killed by {signal.Signals(-code).name}; its log: {self.log}"
        reason = parse_reason(self.own_log()) or "no reason given"
        return f"{reason} (the {self.name} ended with code {code}; its log: {self.log})"

    def own_log(self) -> str:
        """What this run wrote."""
        return self.log.read_bytes()[self.log_offset :].decode(errors="replace")


class Crew:
    """Starts children into the guardian's group. Use as an async context manager; its end is the end of all."""

    def __init__(self, environment: Mapping[str, str], lock_fd: int) -> None:
        self._environment = dict(environment)
        self._lock_fd = lock_fd
        self._children: list[Child] = []
        self._watches: list[asyncio.Task[None]] = []
        self._dead: asyncio.Queue[Child] = asyncio.Queue()

    async def __aenter__(self) -> Crew:
        read_fd, self._pipe_fd = os.pipe()  # neither is inherited unless passed
        try:
            # The guardian inherits the lock: until the last orphan is gone, nobody starts on this folder.
            self._guardian = subprocess.Popen(  # noqa: S603, ASYNC220 - ours; returns at once
                [sys.executable, "-I", guardian.__file__, str(read_fd), str(ORPHANS_GRACE_S)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(read_fd, self._lock_fd),
                process_group=0,
            )
        finally:
            os.close(read_fd)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()

    async def run(self, *arguments: str, quiet: bool = True) -> str:
        """Run a `b3os` command to its end and return what it printed; not quiet, it prints here instead.

        Raises:
            AlreadyTold: it failed and printed here. DevError: it failed, with its own last words.
        """
        pipe = asyncio.subprocess.PIPE if quiet else None
        command = (sys.executable, "-m", "shared.cli", *arguments)
        process = await self._spawn(command, pipe)
        out, err = await process.communicate()
        if process.returncode == 0:
            return (out or b"").decode()
        if not quiet and (process.returncode or 0) > 0:
            raise AlreadyTold
        reason = parse_reason((err or b"").decode(errors="replace")) or f"code {process.returncode}"
        raise DevError(f"b3os {' '.join(arguments[:2])} failed: {reason}")

    async def start(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        stop_within_s: float,
        hidden: tuple[str, ...] = (),
        own: Mapping[str, str] = MappingProxyType({}),
    ) -> Child:
        """Start a server; its output goes to the end of `log`. Children are stopped in the reverse order.

        Args:
            hidden: prefixes of variables that are none of its business.
            own: variables for it alone, whatever `hidden` says.
        """
        with open_log(log) as file:
            offset = file.tell()
            process = await self._spawn(command, file, hidden, own)
        child = Child(name, process, log, offset, stop_within_s)
        self._children.append(child)
        self._watches.append(asyncio.create_task(self._watch(child)))
        return child

    def add_environment(self, variables: Mapping[str, str]) -> None:
        """For children that start later."""
        self._environment |= variables

    async def first_death_told(self) -> None:
        """Wait until a server ends by itself, and raise DevError with its epitaph."""
        child = await self._dead.get()
        raise DevError(child.epitaph())

    async def guardian_death(self) -> None:
        """Wait until the guardian is gone, and raise DevError: without it, kill -9 would leave orphans."""
        while self._guardian.poll() is None:  # noqa: ASYNC110 - the kernel sets no Event
            await asyncio.sleep(_GUARDIAN_POLL_S)
        raise DevError("the guardian process was killed, so everything stops")

    def kill(self) -> None:
        """End all at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guardian.pid, signal.SIGKILL)

    async def _spawn(
        self,
        command: Sequence[str],
        output: int | IO[bytes] | None,
        hidden: tuple[str, ...] = (),
        own: Mapping[str, str] = MappingProxyType({}),
    ) -> asyncio.subprocess.Process:
        kept = {name: value for name, value in self._environment.items() if not name.startswith(hidden)}
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**kept, **own},
            process_group=self._guardian.pid,
        )

    async def _watch(self, child: Child) -> None:
        await child.process.wait()
        self._dead.put_nowait(child)

    async def _stop(self) -> None:
        for child in reversed(self._children):
            if child.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.terminate()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(child.process.wait(), child.stop_within_s)
        # Whoever is left is a child past its deadline, or what a dead child has left behind.
        self.kill()
        self._guardian.wait()
        os.close(self._pipe_fd)
        await asyncio.gather(*self._watches)
        await self._until_gone()

    async def _until_gone(self) -> None:
        """The dead of the group that init has not buried yet still count, so this gives up after a while."""
        deadline_s = time.monotonic() + _GROUP_ENDS_WITHIN_S
        while time.monotonic() < deadline_s:
            try:
                os.killpg(self._guardian.pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            await asyncio.sleep(0.02)
