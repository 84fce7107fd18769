"""Two hundred at once, through two edges and three nodes: as many pass as may."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from tests.e2e.money.audit import read_loose, settled_books
from tests.e2e.money.client import Call, Step, Tenant, endless, words
from tests.e2e.money.service import Service, until

ASKED, LIMIT = 200, 50


async def ask_at_once(service: Service, limit: str, script: list[Step]) -> tuple[Tenant, list[Call]]:
    """The heads of all answers. A machine so busy that Redis doesn't answer in a second refuses some for that reason:
    then it is all done again, with another organization, and no more pass in any case."""
    for _ in range(20):
        tenant = await Tenant.made(service, **{limit: LIMIT})
        calls = [tenant.call(script, edge=service.edges[number % 2]) for number in range(ASKED)]
        await asyncio.gather(*(call.begin() for call in calls))
        statuses = Counter(call.status for call in calls)
        assert statuses[200] <= LIMIT
        assert set(statuses) <= {200, 429, 503}
        if 503 not in statuses:
            return tenant, calls
        for call in calls:
            call.leave()
    raise AssertionError("Redis never had a second for them")


async def test_fifty_of_two_hundred_pass_a_limit_of_fifty_a_minute(service: Service) -> None:
    tenant, calls = await ask_at_once(service, "requests_per_minute", words(3))
    await asyncio.gather(*(call.read() for call in calls))
    passed = [call for call in calls if call.status == 200]
    refused = Counter(call.code for call in calls if call.status == 429)
    assert (len(passed), refused) == (LIMIT, {"rate_limited": ASKED - LIMIT})
    assert all(call.is_whole and call.output_tokens == 3 for call in passed)
    assert {call.headers["RateLimit-Limit"] for call in calls} == {str(LIMIT)}
    assert sorted(int(call.headers["RateLimit-Remaining"]) for call in passed) == list(range(LIMIT))
    assert all(1 <= int(call.headers["Retry-After"]) <= 65 for call in calls if call.status == 429)
    books = await settled_books(tenant)
    assert set(books.bills()) == {call.request_id for call in passed}
    assert {books.output_of(call) for call in passed} == {3}


async def test_fifty_of_two_hundred_run_at_once(service: Service) -> None:
    tenant, calls = await ask_at_once(service, "concurrent_requests", endless(1))
    running = [call for call in calls if call.status == 200]
    await asyncio.gather(*(call.read() for call in calls if call.status == 429))
    assert Counter(call.code for call in calls if call.status == 429) == {"concurrency_limited": ASKED - LIMIT}
    assert len(running) == LIMIT
    assert (await read_loose(tenant)).leases == LIMIT
    running.pop().leave()
    running.append(await tenant.opened(endless(1)))  # a place is free, and is taken again
    await (refused := tenant.call()).begin()
    assert refused.status == 429
    refused.leave()
    for call in running:
        call.leave()
    books = await settled_books(tenant)
    assert len(books.bills()) == LIMIT + 1
    assert {bill["output_tokens"] for bill in books.bills().values()} == {1}


async def test_a_refused_request_leaves_its_record_and_nothing_else(service: Service) -> None:
    tenant = await Tenant.made(service, requests_per_minute=1)
    assert (await tenant.ask()).status == 200
    refused = await tenant.ask()
    assert refused.status == 429

    async def is_logged() -> bool:
        page = await tenant.get("/v1/requests")
        return refused.request_id in {record["id"] for record in page["data"]}

    await until(is_logged, "the refusal is logged")
    record = await tenant.get(f"/v1/requests/{refused.request_id}", service.edges[1])
    assert record.pop("created_at")
    assert record.pop("node") in {node.name for node in service.nodes}
    phases, total_ms = record.pop("phases_ms"), record.pop("total_ms")
    assert set(phases) == {"admission"}  # its body was never looked at
    assert total_ms >= sum(phases.values()) - 0.1
    assert record == {
        "id": refused.request_id,
        "key_id": tenant.key_id,
        "project": "main",
        "model": service.model,
        "outcome": "refused",
        "status": 429,
        "error_code": "rate_limited",
        "stop_reason": None,
        "usage": dict.fromkeys(("input_tokens", "output_tokens", "cached_tokens", "image_bytes"), 0),
        "cost_nano_usd": 0,
        "price": "in3-out10",
        "ttft_ms": None,
    }
    assert tenant.token not in json.dumps(record)
    assert len((await settled_books(tenant)).bills()) == 1
