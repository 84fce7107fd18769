"""A real engine dies in the middle of an answer."""

from __future__ import annotations

from tests.bench.restarts import ENDLESS
from tests.e2e.money.audit import settled_books
from tests.e2e.money.client import Tenant
from tests.e2e.money.service import Part, Service
from tests.e2e.money.troubles import core_of


async def test_what_a_dead_engine_had_generated_is_billed(service: Service, tenant: Tenant, real_edge: Part) -> None:
    call = await tenant.opened([], edge=real_edge, model="b3os/tiny-vision", messages=ENDLESS, max_tokens=3000)
    await call.read(5)
    core = core_of(service.more[0])
    assert core is not None
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
