"""What tests of every kind share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.stack import DevCommand, DevStack, running_dev
from tests.redis_server import running_redis


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real Redis a session, as `b3os dev` configures it; tests keep apart by the names of their keys."""
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def dev_scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """The whole service, once a session: edge, node and Redis, with canned answers."""
    settings = {
        "B3OS_EDGE_LOGIN_FAILURES_PER_ADDRESS": "100000",  # all tests fail from one address
        "B3OS_EDGE_LOGIN_FAILURES_PER_ACCOUNT": "100000",
        "B3OS_EDGE_DEVICE_LOGINS_PER_ADDRESS": "100000",
    }
    with running_dev(DevCommand(tmp_path_factory.mktemp("dev") / "home"), settings=settings) as stack:
        yield stack
