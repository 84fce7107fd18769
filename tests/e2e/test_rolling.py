"""All parts of a service are replaced, one after the other, while clients ask: none of them is turned away."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.e2e.money.audit import settled_books
from tests.e2e.money.client import Call, Tenant, ticks, words
from tests.e2e.money.service import Part, Service, running_service, until

CLIENTS = 8
DRAIN_S = 30.0


@pytest.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """Two nodes behind one edge, with time to drain."""
    async with running_service(
        tmp_path_factory.mktemp("rolling"), nodes=2, edges=1, drain_s=DRAIN_S, served={}
    ) as service:
        yield service


@dataclass(slots=True)
class Load:
    """Clients that ask, each one call after the other, until they are told to stop.

    Attributes:
        calls: that have ended.
    """

    tenant: Tenant
    calls: list[Call] = field(default_factory=list)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask_on(self, number: int) -> None:
        """Short ones and long ones, whole and streamed."""
        for turn in itertools.count(number):
            if self._stop.is_set():
                return
            script = ticks(1.0, 0.1) if turn % 3 == 0 else [["pause", 0.05], *words(5)]
            self.calls.append(await self.tenant.call(script, stream=turn % 2 == 0).run())

    async def more(self, count: int) -> None:
        """Wait for so many further calls."""
        wanted = len(self.calls) + count

        async def are_there() -> bool:
            return len(self.calls) >= wanted

        await until(are_there, f"{wanted} calls have ended")

    def stop(self) -> None:
        """No further ones."""
        self._stop.set()

    def failed(self) -> list[tuple[int | None, str | None]]:
        """Status and code of all that did not reach their ends."""
        return [(call.status, call.code) for call in self.calls if not call.is_whole]


async def replaced(service: Service, part: Part) -> None:
    """Stopped with SIGTERM and started again, as a deployment does."""
    await asyncio.to_thread(part.stop)
    part.start()
    await until(lambda: service.is_ready(part), f"{part.name} is ready")


async def test_nodes_are_replaced_in_turn_and_no_request_fails(service: Service) -> None:
    tenant = await Tenant.made(service)
    load = Load(tenant)
    async with asyncio.TaskGroup() as clients:
        for number in range(CLIENTS):
            clients.create_task(load.ask_on(number))
        await load.more(20)
        for node in service.nodes * 2:
            await replaced(service, node)  # and the next one at its word that it is ready
        await load.more(20)
        load.stop()
    assert load.failed() == []
    books = await settled_books(tenant)
    assert {call.request_id: [call.output_tokens] for call in load.calls} == {
        call.request_id: [books.output_of(call)] * len(books.outcomes(call)) for call in load.calls
    }
    assert len(books.entries) == len(load.calls)


async def test_an_edge_ends_what_it_has_begun(service: Service) -> None:
    tenant = await Tenant.made(service)
    calls = [await tenant.opened(ticks(1.0, 0.1)) for _ in range(CLIENTS)]
    reading = [asyncio.create_task(call.read()) for call in calls]
    await asyncio.to_thread(service.edges[0].stop)
    await asyncio.gather(*reading)
    assert [call.is_whole for call in calls] == [True] * CLIENTS
    await service.heal()
    assert len((await settled_books(tenant)).entries) == CLIENTS
