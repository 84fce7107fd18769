"""What tests of every kind share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redis_server import running_redis


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real Redis a session, as `b3os dev` configures it; tests keep apart by the names of their keys."""
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url
