"""A real redis-server for integration tests, found and configured by the code that `b3os dev` runs."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from shared.cli.dev.redis_server import prepare_redis

START_WITHIN_S = 10.0


def free_port() -> int:
    """A port that nobody holds right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_redis(folder: Path, port: int | None = None) -> Iterator[str]:
    """Its URL, while the body runs; what it stored stays in `folder` for a next start."""
    command, url = prepare_redis(folder, free_port() if port is None else port)
    with (folder / "redis.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_until_up(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(START_WITHIN_S)


def _wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    """With the synchronous client: this also runs while pytest's loop does."""
    deadline_s = time.monotonic() + START_WITHIN_S
    with Redis.from_url(url, socket_timeout=1) as client:
        while True:
            with contextlib.suppress(RedisError):
                client.ping()
                return
            assert process.poll() is None, "redis-server ended; its log lies in its folder"
            assert time.monotonic() < deadline_s, "redis-server does not answer"
            time.sleep(0.02)
