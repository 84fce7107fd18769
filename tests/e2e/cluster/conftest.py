"""Two edges that know three nodes from the registry alone, healed after each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.money.client import Tenant
from tests.e2e.money.service import Service, running_service

SHARED, RARE = "b3os/scripted", "b3os/rare"


@pytest.fixture(scope="session")
async def cluster_service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """Two nodes serve the same model, and one serves another."""
    served = {"n1": SHARED, "n2": SHARED, "n3": RARE}
    async with running_service(tmp_path_factory.mktemp("cluster"), served=served) as service:
        yield service


@pytest.fixture
async def service(cluster_service: Service) -> AsyncIterator[Service]:
    """What a test broke is mended after it."""
    yield cluster_service
    await cluster_service.heal()


@pytest.fixture
async def tenant(service: Service) -> Tenant:
    """Without limits."""
    return await Tenant.made(service)
