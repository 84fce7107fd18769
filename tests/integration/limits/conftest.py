"""Worlds to test limits in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import free_ports
from tests.integration.limits.parts import MortalRedis, World, world_on


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    """An organization of the test's own."""
    async with world_on(redis_url) as each:
        yield each


@pytest.fixture
def mortal_redis(tmp_path: Path) -> Iterator[MortalRedis]:
    """A running Redis of the test's own."""
    server = MortalRedis(tmp_path / "mortal", free_ports(1)[0])
    server.start()
    yield server
    server.kill()
