"""One service for all of these tests, healed after each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.money.client import Tenant
from tests.e2e.money.service import Part, Service, running_service, until

STARTED_WITHIN_S = 300.0


@pytest.fixture(scope="session")
async def money_service(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Service]:
    """Three nodes, two edges; and a node with a real engine, which loads meanwhile, if any test asks for it."""
    real = any("real_edge" in getattr(item, "fixturenames", ()) for item in request.session.items)
    async with running_service(tmp_path_factory.mktemp("money"), real=real) as service:
        yield service


@pytest.fixture
async def service(money_service: Service) -> AsyncIterator[Service]:
    """What a test broke is mended after it."""
    yield money_service
    await money_service.heal()


@pytest.fixture
async def tenant(service: Service) -> Tenant:
    """Without limits."""
    return await Tenant.made(service)


@pytest.fixture
async def real_edge(service: Service) -> Part:
    """In front of the one node with a real engine, which takes requests."""
    for part in service.more:
        await until(lambda part=part: service.is_ready(part), f"{part.name} is ready", STARTED_WITHIN_S)  # type: ignore[misc]
    return service.more[1]
