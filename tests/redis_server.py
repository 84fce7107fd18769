"""A real redis-server for integration tests, found and configured by the code that `b3os dev` runs.

It has the users of `shared/redis_acl.py`, and `operator` for what tests look at and break. At its end it must have
denied nothing: a right that is missing may else be swallowed by code that takes Redis for dead.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

from redis import Redis
from redis.exceptions import RedisError

from shared.cli.dev.redis_server import acl_file, password_file, prepare_redis, redis_url
from shared.redis_acl import EDGE, NODE, render_acl

START_WITHIN_S = 60.0
User = Literal["edge", "node", "operator"]
_PORTS = range(20_000, 32_000)
_ports = itertools.islice(itertools.cycle(_PORTS), random.randrange(len(_PORTS)), None)


def free_port() -> int:
    """A port that nobody holds right now, and another one each time: whoever got one may not have taken it yet.

    Below the range from which systems give ports to connections: one of those may be taken before it is used.
    """
    for port in _ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports have no end")


def url_of(user: User, port: int) -> str:
    """A user's URL."""
    return redis_url(user, user * 8, port)


def as_user(user: User, url: str) -> str:
    """The same server for another user."""
    return url_of(user, urlsplit(url).port or 0)


def prepare(folder: Path, port: int) -> list[str]:
    """The command that starts it."""
    folder.mkdir(parents=True, exist_ok=True)
    for user in ("edge", "node"):
        password_file(folder, user).write_text(user * 8)
    command = prepare_redis(folder, port).command
    acl_file(folder).write_text(render_acl({EDGE: ["edge" * 8], NODE: ["node" * 8]}, ["operator" * 8]))
    return command


@contextlib.contextmanager
def running_redis(folder: Path, port: int | None = None) -> Iterator[str]:
    """The node's URL, while the body runs; what it stored stays in `folder` for a next start."""
    port = free_port() if port is None else port
    command = prepare(folder, port)
    with (folder / "redis.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until_up(url_of("operator", port), process)
        yield url_of("node", port)
        assert_nothing_was_denied(url_of("operator", port))
    finally:
        process.terminate()
        process.wait(START_WITHIN_S)


def assert_nothing_was_denied(operator_url: str) -> None:
    """By the server's own list."""
    with Redis.from_url(operator_url, decode_responses=True) as client:
        denied = cast("list[dict[str, object]]", client.acl_log())
    assert not denied, [(each["username"], each["reason"], each["object"], each["context"]) for each in denied]


def wait_until_up(operator_url: str, process: subprocess.Popen[bytes]) -> None:
    """With the synchronous client: this also runs while pytest's loop does."""
    deadline_s = time.monotonic() + START_WITHIN_S
    with Redis.from_url(operator_url, socket_timeout=1) as client:
        while True:
            with contextlib.suppress(RedisError):
                client.ping()
                return
            assert process.poll() is None, "redis-server ended; its log lies in its folder"
            assert time.monotonic() < deadline_s, "redis-server does not answer"
            time.sleep(0.02)
