"""How long tests wait for Redis: a loop or a machine that stands still for seconds is no Redis that is away.

Where a test freezes Redis, the deadlines are the product's own.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

import pytest
from redis.asyncio import BlockingConnectionPool

import shared.redis

PATIENCE_S = 60.0
DEADLINES = (
    "edge.auth.store.LOOKUP_S",
    "edge.registry._ANSWER_S",
    "node.hearing._ANSWER_S",
    "node.heartbeat._ANSWER_S",
    "node.limits.store.ANSWER_S",
    "shared.redis_durability._ANSWER_S",
)
"""Of whoever asks Redis; those of its connections are `shared.redis._pool`'s."""


def _value_of(path: str) -> float:
    module, _, name = path.rpartition(".")
    return float(getattr(importlib.import_module(module), name))


_own_pool = shared.redis._pool
_own_deadlines = {path: _value_of(path) for path in DEADLINES}


def _patient_pool(url: str, max_connections: int) -> BlockingConnectionPool:
    pool = _own_pool(url, max_connections)
    pool.timeout = PATIENCE_S
    pool.connection_kwargs |= {"socket_timeout": PATIENCE_S, "socket_connect_timeout": PATIENCE_S}
    return pool


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """For all clients of this process that are made while the body runs, and for whoever asks by them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared.redis, "_pool", _patient_pool)
        for path in DEADLINES:
            patched.setattr(path, PATIENCE_S)
        yield


@contextlib.contextmanager
def own_connections() -> Iterator[None]:
    """The product's own, for clients that are made while the body runs: each gives up soon, and asks once more."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared.redis, "_pool", _own_pool)
        yield


@contextlib.contextmanager
def own_deadlines() -> Iterator[None]:
    """The product's own, of all kinds."""
    with own_connections(), pytest.MonkeyPatch.context() as patched:
        for path, deadline_s in _own_deadlines.items():
            patched.setattr(path, deadline_s)
        yield
