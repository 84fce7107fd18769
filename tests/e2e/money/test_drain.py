"""SIGTERM at a node whose answers last longer than it may wait: each has an end, and a bill to the last token."""

from __future__ import annotations

import asyncio
import json

from tests.e2e.money.audit import node_of, settled_books
from tests.e2e.money.client import Tenant, endless
from tests.e2e.money.service import Service


async def test_what_outlasts_a_drain_ends_with_an_error_and_is_billed(service: Service, tenant: Tenant) -> None:
    stream = await tenant.opened(endless(5))
    await stream.read(5)
    node = service.node(await node_of(stream))
    reading, offset = asyncio.create_task(stream.read()), node.log.stat().st_size
    await asyncio.to_thread(node.stop)
    await reading
    assert (stream.is_whole, stream.broke, stream.code) == (False, False, "infer_backend_unavailable")
    lines = [json.loads(line) for line in node.log.read_bytes()[offset:].splitlines()]
    stopping, stopped = [line for line in lines if line["logger"] == "b3os.life"]
    assert (stopping["message"], stopping["under_way"]) == ("stopping", 1)
    assert (stopped["message"], stopped["cut"]) == ("stopped", 1)
    assert (await tenant.ask()).is_whole
    await service.heal()
    books = await settled_books(tenant)
    assert (books.outcomes(stream), books.output_of(stream)) == (["failed"], 5)
    assert books.records[stream.request_id].error_code == "infer_backend_unavailable"


async def test_an_engine_that_dies_is_replaced_and_what_it_held_is_billed(service: Service, tenant: Tenant) -> None:
    stream = await tenant.opened([["text", "a "], ["text", "b "], ["pause", 0.5], ["die"]])
    await stream.read()
    assert (stream.is_whole, stream.broke, stream.code) == (False, False, "infer_backend_unavailable")
    for _ in service.nodes:
        assert (await tenant.ask()).is_whole
    books = await settled_books(tenant)
    assert (books.outcomes(stream), books.output_of(stream)) == (["failed"], 2)
