"""Nodes are killed, frozen and stopped while requests run through two edges: none is lost or billed twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from unittest.mock import ANY

from shared.request_log import RequestLog
from tests.e2e.money.audit import Books, Loose, node_of, read_loose, settled_books
from tests.e2e.money.client import Call, Step, Tenant, words
from tests.e2e.money.service import Part, Service, until

SLOW_S = 8.0
"""In which many requests are let in, and a node is killed, on a machine that stands still meanwhile."""
MANY = 12


def slowly(count: int = 4, pause_s: float = SLOW_S) -> list[Step]:
    """Nothing at first, so that there is a head to wait for."""
    return [["pause", pause_s], *words(count)]


async def waiting_at(tenant: Tenant, count: int = 1) -> dict[str, str]:
    """The node of each request that was let in, once there are so many; it may have ended before anybody looked."""
    log = RequestLog(tenant.service.redis)
    found: dict[str, str] = {}

    async def are_let_in() -> bool:
        page = await log.fetch_page(tenant.org, cursor=None, limit=2 * MANY)
        found.update({record.id: record.node for record in page.records if record.outcome != "refused"})
        return len(found) == count

    await until(are_let_in, f"{count} requests are let in")
    return found


def begin_many(tenant: Tenant, script: list[Step], count: int = MANY) -> list[asyncio.Task[Call]]:
    """Different conversations, through both edges."""
    edges = tenant.service.edges
    return [
        asyncio.create_task(tenant.call(script, edge=edges[number % 2], system=f"number {number}").run())
        for number in range(count)
    ]


def check_books(books: Books, calls: Sequence[Call]) -> None:
    """Every call has an answer, and every answer one bill, of just what it holds."""
    for call in calls:
        assert (call.status, call.is_whole, call.code) == (200, True, None), (call.status, call.code)
        bill = books.bills()[call.request_id]
        assert (bill["requests"], bill["output_tokens"]) == (1, call.output_tokens), bill
        assert call.words == call.output_tokens
    assert len(books.bills()) == len(calls)
    assert [entry["outcome"] for entry in books.entries] == ["finished"] * len(calls)


async def lost(service: Service, name: str) -> None:
    """No edge counts it among its nodes any more."""

    async def is_gone() -> bool:
        told = [await service.facts(edge) for edge in service.edges]
        return all(status and name not in facts["nodes"] for status, facts in told)

    await until(is_gone, f"{name} is gone from the registry")


async def frozen_node_of(tenant: Tenant) -> tuple[asyncio.Task[Call], Part]:
    """A request that waits for its first token at a node that does nothing any more."""
    asked = asyncio.create_task(tenant.call(slowly()).run())
    ((_, name),) = (await waiting_at(tenant)).items()
    node = tenant.service.node(name)
    node.freeze()
    return asked, node


async def test_a_node_that_is_killed_loses_no_request_that_waits_for_its_first_token(
    service: Service, tenant: Tenant
) -> None:
    asked = begin_many(tenant, slowly())
    waiting = await waiting_at(tenant, MANY)
    assert set(waiting.values()) == {"n1", "n2"}
    service.node("n1").kill()
    calls = await asyncio.gather(*asked)
    check_books(await settled_books(tenant), calls)
    assert {await node_of(call) for call in calls} == {"n2"}


async def test_a_node_that_refuses_connections_costs_nobody_anything(service: Service, tenant: Tenant) -> None:
    service.node("n1").kill()
    calls = await asyncio.gather(*begin_many(tenant, words(3)))
    check_books(await settled_books(tenant), calls)


async def test_a_stream_that_had_begun_ends_in_an_error_and_is_begun_nowhere_else(
    service: Service, tenant: Tenant
) -> None:
    call = await tenant.opened([*words(3), ["pause", 60]])
    await call.read(3)
    name = await node_of(call)
    service.node(name).kill()
    await call.read()
    assert (call.words, call.is_whole, call.code) == (3, False, "node_unavailable")
    assert (await node_of(call), await read_loose(tenant)) == (name, Loose(1, 1, ANY, 0, 0))  # a sweeper will bill it
    assert (await tenant.ask()).is_whole


async def test_a_frozen_node_s_request_is_taken_over_once_its_heartbeat_is_gone(
    service: Service, tenant: Tenant
) -> None:
    asked, node = await frozen_node_of(tenant)
    call = await asked
    await lost(service, node.name)
    node.thaw()  # it finds that its client is gone, and that the bill is another's
    check_books(await settled_books(tenant), [call])
    assert await node_of(call) != node.name


async def test_a_node_that_is_told_to_stop_loses_nothing(service: Service, tenant: Tenant) -> None:
    for name in ("n1", "n2"):
        begun = begin_many(tenant, [["pause", 0.5], *words(2)], 4)
        await waiting_at(tenant, 4)
        stopping = asyncio.create_task(asyncio.to_thread(service.node(name).stop))
        calls = [await tenant.call(words(2), edge=service.edges[number % 2]).run() for number in range(8)]
        await stopping
        calls += await asyncio.gather(*begun)
        check_books(await settled_books(tenant), calls)
        await service.heal()
        tenant = await Tenant.made(service)


async def test_an_idle_node_that_stops_is_gone_at_once_and_no_edge_takes_it_for_dead(
    service: Service, tenant: Tenant
) -> None:
    offsets = [edge.log.stat().st_size for edge in service.edges]
    await asyncio.to_thread(service.node("n2").stop)
    assert await service.redis.sismember("b3os:nodes", "n2") == 0
    await lost(service, "n2")
    for edge, offset in zip(service.edges, offsets, strict=True):
        lines = [json.loads(line) for line in edge.log.read_bytes()[offset:].splitlines()]
        said = [(line["level"], line["message"]) for line in lines if line.get("node") == "n2"]
        assert said == [("info", "node stopped")]


async def test_no_node_of_a_model_is_a_refusal_and_the_others_go_on(service: Service, tenant: Tenant) -> None:
    service.node("n3").kill()
    await lost(service, "n3")
    refused = await tenant.call(words(1), model="b3os/rare").run()
    assert (refused.status, refused.code) == (404, "model_not_available")
    assert (await tenant.ask()).is_whole


async def test_nodes_stay_known_while_redis_is_away_and_when_it_comes_back(service: Service, tenant: Tenant) -> None:
    assert (await tenant.ask()).is_whole
    service.store.kill()

    async def knows_that_it_is_away() -> bool:
        told = [await service.facts(edge) for edge in service.edges]
        return all(status and not facts["registry"] for status, facts in told)

    await until(knows_that_it_is_away, "both edges know that the registry is away")
    await (refused := tenant.call()).begin()
    await refused.read()
    assert refused.code == "infer_backend_unavailable"  # of a node, which can't check limits: it was asked
    await asyncio.sleep(7)  # so that Redis wakes up with no heartbeat that lives
    await asyncio.to_thread(service.start_store)
    known: list[int] = []

    async def is_back() -> bool:
        told = [facts for status, facts in [await service.facts(edge) for edge in service.edges] if status]
        known.extend(len(facts["nodes"]) for facts in told)
        return len(told) == 2 and all(facts["registry"] for facts in told)

    await until(is_back, "both edges read the registry again")
    assert set(known) == {3}
    assert (await tenant.ask()).is_whole
