"""The stub node, Redis and the edge as processes, and how their CPU and memory are read.

Decides how they are started, and that none outlives the measurement. Must not know what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from edge.auth.key_store import RedisKeyStore
from edge.signing import create_key_files
from shared.redis import connect_redis
from tests.bench.edge.client import Way
from tests.e2e.stack import ROOT, free_ports
from tests.integration.edge.parts import MESSAGES, make_key
from tests.redis_server import as_user, running_redis

READY_WITHIN_S = 120.0
STOP_WITHIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Stub:
    """The running stub node."""

    port: int
    pid: int

    @property
    def direct(self) -> Way:
        """The way to it that all others are compared to; it checks no token."""
        return Way("direct", self.port, MESSAGES, "no-one-looks-at-it", (self.pid,))


@contextlib.contextmanager
def running_stub() -> Iterator[Stub]:
    """Start it and stop it."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.bench.edge.stub_node", str(port)]
    with running("the stub node", command, {}, f"http://127.0.0.1:{port}/") as pid:
        yield Stub(port, pid)


@contextlib.contextmanager
def running_edge(stub: Stub) -> Iterator[Way]:
    """`python -m edge` with a Redis of its own, in front of the stub; the way has a key in it."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as name, running_redis(Path(name) / "redis") as redis_url:
        edge_url = as_user("edge", redis_url)
        create_key_files(Path(name) / "private.pem", Path(name) / "public.json")
        environ = {
            "B3OS_REDIS_URL": edge_url,
            "B3OS_EDGE_PORT": str(port),
            "B3OS_EDGE_OPERATOR_PORT": str(port + 1),
            "B3OS_EDGE_SIGNING_KEY_FILE": str(Path(name) / "private.pem"),
            "B3OS_EDGE_NODES": json.dumps({"n1": f"http://127.0.0.1:{stub.port}"}),
        }
        token = asyncio.run(_make_key(edge_url))
        command, ready = [sys.executable, "-m", "edge"], f"http://127.0.0.1:{port + 1}/readyz"
        with running("the edge", command, environ, ready) as pid:
            yield Way("through the edge", port, MESSAGES, token, (pid,))


async def _make_key(redis_url: str) -> str:
    redis = connect_redis(redis_url)
    async with redis:
        return (await make_key(RedisKeyStore(redis)))[1].token


@contextlib.contextmanager
def running(
    name: str, command: Sequence[str], environ: Mapping[str, str], ready: str, *, cwd: Path = ROOT
) -> Iterator[int]:
    """Start, wait until it answers, and end it; what it wrote is told only if it fails. Gives the process's id."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("B3OS_")}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**inherited, **environ}, cwd=cwd
        )
        try:
            if not _becomes_ready(process, ready):
                log.seek(0)
                raise SystemExit(f"{name} did not start:\n{log.read().decode()[-8000:]}")
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _becomes_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline_s = time.monotonic() + READY_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url, timeout=5):
            return True
        time.sleep(0.1)
    return False


def cpu_s(pids: Iterable[int]) -> float:
    """What these processes and their living children have used so far."""
    total = 0.0
    for pid in pids:
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def resident_mib(pid: int) -> float:
    """Of one process."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20
