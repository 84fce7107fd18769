"""A node, an edge or Redis is killed in the middle of answers: no token is lost, and none is billed twice."""

from __future__ import annotations

import asyncio
import itertools
import time

from node.limits.names import leases_key
from node.limits.redis_limiter import LEASE_MS
from tests.e2e.money.audit import node_of, read_books, read_loose, settled_books, told_output
from tests.e2e.money.client import LONG_S, Call, Tenant, endless, ticks, words
from tests.e2e.money.service import Service, until

SOON_S = 20.0
"""Two seconds, and what a busy machine needs. Who waits for Redis as redis-py does by itself waits longer."""


async def redis_ms(service: Service) -> int:
    """The clock by which leases end."""
    seconds, microseconds = await service.redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


async def refusal(tenant: Tenant) -> Call:
    """A call that must be refused soon, since Redis is away."""
    begun_s = time.monotonic()
    await (call := tenant.call()).begin()
    await call.read()
    assert (call.status, call.code) in ((503, "infer_backend_unavailable"), (503, "node_unavailable"))
    assert int(call.headers["Retry-After"]) >= 1
    assert time.monotonic() - begun_s < SOON_S
    return call


async def opened_elsewhere(tenant: Tenant, name: str) -> Call:
    """A stream of nine words, five at once, on any node but this one: the same prompt would go there again."""
    for attempt in itertools.count():
        stream = await tenant.opened([*words(5), ["pause", 20 + attempt / 100], *words(4)])
        if await node_of(stream) != name:
            return stream
        stream.leave()
    raise AssertionError("unreachable")


async def test_a_node_that_is_killed_and_one_that_is_taken_for_dead(service: Service, tenant: Tenant) -> None:
    """A sweeper bills both, to the last count that they told; who was alive after all then has the last word."""
    killed = await tenant.opened(endless(5))
    await killed.read(5)
    doomed = await node_of(killed)

    async def has_told() -> bool:
        return await told_output(killed) == 5

    await until(has_told, "the node has renewed its lease with the count so far")
    mute = await opened_elsewhere(tenant, doomed)
    await mute.read(5)
    await until(lambda: told_output(mute), "this one's node has told of it too")
    frozen = service.node(await node_of(mute))
    service.node(doomed).kill()
    at_most_ms = await redis_ms(service) + LEASE_MS
    for _ in service.nodes:  # the others serve whom the dead one would have
        assert (await tenant.ask()).is_whole
    frozen.freeze()
    await killed.read()
    assert (killed.is_whole, killed.broke, killed.code) == (False, False, "node_unavailable")
    ends_ms = await service.redis.zscore(leases_key(tenant.org), killed.request_id)
    assert ends_ms is not None
    assert ends_ms <= at_most_ms

    async def are_swept() -> bool:
        books = await read_books(tenant)
        return books.outcomes(killed) == books.outcomes(mute) == ["abandoned"]

    await until(are_swept, "both are billed by the third node")
    books = await read_books(tenant)
    assert books.output_of(killed) == 5
    assert 1 <= books.output_of(mute) <= 5
    frozen.thaw()
    await mute.read()
    assert mute.output_tokens == mute.words == 9
    books = await settled_books(tenant)
    assert books.outcomes(mute) == ["abandoned", "reversed", "finished"]
    assert books.output_of(mute) == 9
    assert books.output_of(killed) == 5
    for edge in service.edges:
        record = await tenant.get(f"/v1/requests/{killed.request_id}", edge)
        assert (record["outcome"], record["status"], record["usage"]["output_tokens"]) == ("abandoned", None, 5)
        assert record["cost_nano_usd"] == 3 * record["usage"]["input_tokens"] + 50


async def test_a_node_that_is_told_to_stop_settles_what_runs(service: Service, tenant: Tenant) -> None:
    call = await tenant.opened(endless(6))
    await call.read(6)
    await asyncio.to_thread(service.node(await node_of(call)).stop)
    assert (await read_books(tenant)).output_of(call) == 6  # by itself, before it ended
    await call.read()
    assert (call.is_whole, call.code) == (False, "infer_backend_unavailable")
    books = await settled_books(tenant)
    assert (books.outcomes(call), books.output_of(call)) == (["failed"], 6)
    record = books.records[call.request_id]
    assert (record.status, record.error_code) == (200, "infer_backend_unavailable")


async def test_an_edge_that_is_killed(service: Service, tenant: Tenant) -> None:
    doomed, other = service.edges
    stream = await tenant.opened(endless(6), edge=doomed)
    await stream.read(6)
    early = tenant.call([["pause", LONG_S]], edge=doomed)
    beginning = asyncio.create_task(early.begin())

    async def both_run() -> bool:
        return (await read_loose(tenant)).leases == 2

    await until(both_run, "both are let in")
    doomed.kill()
    await stream.read()
    await beginning
    assert (stream.broke, stream.is_whole, early.broke, early.status) == (True, False, True, None)
    assert (await tenant.ask(edge=other)).is_whole
    await service.heal()
    books = await settled_books(tenant)
    assert (books.outcomes(stream), books.output_of(stream)) == (["client_gone"], 6)
    (unknown,) = (record for id_, record in books.records.items() if record.status == 499)
    assert (unknown.outcome, unknown.cost_nano_usd) == ("client_gone", 0)


async def test_redis_is_killed_and_started_again(service: Service, tenant: Tenant) -> None:
    gone, long, short = [await tenant.opened(script) for script in (endless(4), ticks(16), ticks(8))]
    await asyncio.gather(short.read(1), long.read(1), gone.read(4))
    service.store.kill()
    await refusal(tenant)
    gone.leave()
    await short.read()

    async def are_spooled() -> bool:
        return {f"{call.request_id}.bill" for call in (short, gone)} <= set(service.spooled())

    await until(are_spooled, "both bills are in the spool")
    assert not long.is_whole
    await asyncio.to_thread(service.start_store)
    await long.read()
    assert (await tenant.ask()).is_whole
    books = await settled_books(tenant)
    for call in (short, long):
        assert call.is_whole
        assert books.output_of(call) == call.output_tokens == call.words
        assert books.outcomes(call) == ["finished"]
    assert (books.outcomes(gone), books.output_of(gone)) == (["client_gone"], 4)


async def test_a_node_is_killed_with_a_bill_in_its_spool(service: Service, tenant: Tenant) -> None:
    call = await tenant.opened(ticks(8))
    await call.read(1)
    node = service.node(await node_of(call))
    service.store.kill()
    await call.read()
    assert call.is_whole

    async def is_spooled() -> bool:
        return service.spooled(node) == [f"{call.request_id}.bill"]

    await until(is_spooled, "the bill is in the spool")
    node.kill()
    await asyncio.to_thread(service.start_store)
    assert (await read_books(tenant)).entries == []
    assert service.spooled(node) == [f"{call.request_id}.bill"]
    node.start()
    books = await settled_books(tenant)
    assert (books.outcomes(call), books.output_of(call)) == (["finished"], call.output_tokens)
