"""A real engine dies in the middle of an answer."""

from __future__ import annotations

import pytest

from tests.e2e.money.audit import settled_books
from tests.e2e.money.client import Tenant
from tests.e2e.money.service import Part, Service, until
from tests.e2e.money.troubles import core_of

STARTED_WITHIN_S = 300.0
ENDLESS = [{"role": "user", "content": "Count from 1 to 100"}]
"""The tiny model counts to 60 and then says one thing for ever."""


@pytest.fixture
async def real_edge(service: Service) -> Part:
    """In front of the one node with a real engine, which takes requests."""
    for part in service.more:
        await until(lambda part=part: service.is_ready(part), f"{part.name} is ready", STARTED_WITHIN_S)  # type: ignore[misc]
    return service.more[1]


async def test_what_a_dead_engine_had_generated_is_billed(service: Service, tenant: Tenant, real_edge: Part) -> None:
    call = await tenant.opened([], edge=real_edge, model="b3os/tiny-vision", messages=ENDLESS, max_tokens=3000)
    await call.read(5)
    core = core_of(service.more[0])
    assert core is not None
    core.kill()
    await call.read()
    assert (call.is_whole, call.broke, call.code) == (False, False, "infer_backend_unavailable")
    refused = tenant.call([], edge=real_edge, model="b3os/tiny-vision", messages=ENDLESS)
    await refused.begin()
    await refused.read()
    assert (refused.status, refused.code) == (503, "infer_backend_unavailable")
    assert int(refused.headers["Retry-After"]) >= 1
    books = await settled_books(tenant)
    assert books.outcomes(call) == ["failed"]
    assert 5 <= call.words <= books.output_of(call) < 3000  # a number is a token at least, and blanks may be more
    assert books.bills()[call.request_id]["input_tokens"] > 0
    assert books.bills()[refused.request_id]["cost_nano_usd"] == 0  # let in or not: the death may not be noticed yet
    assert books.records[call.request_id].error_code == "infer_backend_unavailable"
