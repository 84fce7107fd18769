"""`b3os dev` as a subprocess, for tests of the whole service."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.cli.dev.snippets import Facts

ROOT = Path(__file__).parents[2]
MODELS = ROOT / ".b3os" / "models"
STOP_WITHIN_S = 45.0
_PAIRS = range(10_000, 20_000, 2)
_pairs = itertools.islice(itertools.cycle(_PAIRS), random.randrange(len(_PAIRS)), None)


@dataclass(frozen=True, slots=True)
class DevStack(Facts):
    """A running service: what dev.json says, the process of `b3os dev`, and its state folder."""

    pid: int
    home: Path


def free_ports(count: int) -> list[int]:
    """Ports that nobody holds right now, each with its successor free too, for operators, and others each time.

    Below the range from which systems give ports to connections: one of those may be taken before it is used.
    """
    with contextlib.ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = next(_pairs)
            first, second = (held.enter_context(socket.socket()) for _ in range(2))
            with contextlib.suppress(OSError):
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
                found.append(port)
        return found


@dataclass(slots=True)
class DevCommand:
    """How to start `b3os dev`: the same home and ports at every start."""

    home: Path
    engine: str = "scripted"
    ports: list[int] = field(default_factory=lambda: free_ports(3))

    def arguments(self) -> list[str]:
        """The command line."""
        edge, node, redis = self.ports
        options = {
            "engine": self.engine,
            "home": self.home,
            "edge-port": edge,
            "node-port": node,
            "redis-port": redis,
        }
        return [sys.executable, "-m", "shared.cli", "dev", *(f"--{name}={value}" for name, value in options.items())]

    def start(self, *more: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Run it; its output is in `process.stdout`, errors included."""
        return subprocess.Popen(
            [*self.arguments(), *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(os.environ if environ is None else environ),
            cwd=ROOT,
        )

    def wait_until_ready(self, process: subprocess.Popen[str], within_s: float = 60) -> DevStack:
        """What it wrote, once it says that it is ready."""
        assert process.stdout is not None
        deadline_s = time.monotonic() + within_s
        said = ""
        for line in process.stdout:
            said += line
            assert time.monotonic() < deadline_s, said
            if line.startswith("Ctrl-C stops it"):
                facts: dict[str, Any] = json.loads((self.home / "dev.json").read_text())
                return DevStack(**facts, pid=process.pid, home=self.home)
        raise AssertionError(f"b3os dev ended early: {said}")


@contextlib.contextmanager
def running_dev(
    command: DevCommand, *, within_s: float = 60, settings: Mapping[str, str] | None = None
) -> Iterator[DevStack]:
    """Start, wait, and stop with SIGTERM at the end; `settings` are variables."""
    process = command.start("--with-parent", environ={**os.environ, **(settings or {})})
    try:
        yield command.wait_until_ready(process, within_s)
    finally:
        stop(process)


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> str:
    """Send a signal, wait for the end, and return what else it said."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
    try:
        said, _ = process.communicate(timeout=STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return said
