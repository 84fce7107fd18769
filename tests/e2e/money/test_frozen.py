"""Redis freezes for half a minute: new requests are refused, running ones end, and all is billed when it thaws."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from tests.e2e.money.audit import settled_books
from tests.e2e.money.client import Tenant, endless, ticks
from tests.e2e.money.service import Service, until
from tests.e2e.money.test_deaths import refusal

AWAY = "infer_backend_unavailable"
FROZEN_S = 30.0
MANY = 20


async def timed_refusal(tenant: Tenant) -> tuple[str | None, float]:
    """Its code, and the seconds that it took."""
    begun_s = time.monotonic()
    return (await refusal(tenant)).code, time.monotonic() - begun_s


async def test_redis_is_frozen_for_half_a_minute(service: Service) -> None:
    streams, asking = await Tenant.made(service), await Tenant.made(service)
    long, gone = await streams.opened(ticks(45, 0.5)), await streams.opened(endless(4))
    short = await streams.opened(ticks(12))
    assert (await asking.ask()).is_whole  # from here on the edge knows the key for 10 s
    await asyncio.gather(short.read(1), long.read(1), gone.read(4))
    service.store.freeze()
    frozen_s = time.monotonic()
    await asyncio.gather(*(refusal(asking) for _ in service.nodes))  # each node finds out
    # And asks no more: each of these would wait for a second. A machine that stands still delays one or two of them,
    # and may take so long that the edge forgets the key.
    took_s = [taken_s for code, taken_s in [await timed_refusal(asking) for _ in range(MANY)] if code == AWAY]
    assert median(took_s) < 0.5
    gone.leave()
    await short.read()

    async def are_spooled() -> bool:
        return {f"{call.request_id}.bill" for call in (short, gone)} <= set(service.spooled())

    await until(are_spooled, "both bills are in the spool")
    await asyncio.sleep(frozen_s + FROZEN_S - time.monotonic())
    assert (await refusal(asking)).code == "node_unavailable"  # the edge has forgotten the key
    assert not long.is_whole
    service.store.thaw()
    await long.read()
    assert (await asking.ask()).is_whole
    books = await settled_books(streams)
    for call in (short, long):
        assert call.is_whole
        assert books.output_of(call) == call.output_tokens == call.words
        assert books.outcomes(call) == ["finished"]
    assert (books.outcomes(gone), books.output_of(gone)) == (["client_gone"], 4)
    # What Redis found in its sockets when it thawed nobody waited for any more: its node ends it, and it is free.
    refused = await settled_books(asking)
    assert sum(bill["output_tokens"] > 0 for bill in refused.bills().values()) == 2
    assert {record.status for record in refused.records.values()} <= {200, 503}
