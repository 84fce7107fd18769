"""Clients that leave while an image is fetched for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
from yarl import URL

from node.images.fetch import MAX_FETCHES_OF_A_PAYER, MAX_FETCHES_OF_A_REQUEST
from tests.contract.service import MESSAGES, Service
from tests.e2e.egress.conftest import asking, log_of
from tests.e2e.stack import DevStack
from tests.integration.egress.conftest import At
from tests.integration.egress.lab import Lab

WITHIN_S = 50
"""Less than the node's own patience, so that only their leaving can have ended anything."""
CLIENTS = MAX_FETCHES_OF_A_PAYER // MAX_FETCHES_OF_A_REQUEST
PLACES = CLIENTS * MAX_FETCHES_OF_A_REQUEST


@pytest.fixture
def patient(patient_stack: DevStack, lab: Lab) -> Iterator[Service]:
    del lab
    service = Service(patient_stack)
    yield service
    service.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


async def send_and_stay(service: Service, body: bytes) -> asyncio.StreamWriter:
    """Ask on a connection of one's own, and wait for no answer."""
    edge = URL(service.stack.edge_url)
    _, writer = await asyncio.open_connection(edge.host, edge.port)
    head = f"POST {MESSAGES} HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {service.stack.api_key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return writer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/silent", "/stall", "/slow-headers"])
async def test_who_leaves_takes_his_fetches_along(
    patient: Service, lab: Lab, at: At, path: str, *, stream: bool
) -> None:
    """They hold all places that they may; if one were still held, the next of these tests would never get there."""
    log = log_of(patient.stack)
    log.forget()
    urls = [at(f"{path}?{number}") for number in range(MAX_FETCHES_OF_A_REQUEST + 1)]
    body = json.dumps(asking(patient, *urls, stream=stream)).encode()
    writers = [await send_and_stay(patient, body) for _ in range(CLIENTS)]
    try:
        await until(lambda: len(lab.requests) == lab.answering == PLACES)
    finally:
        for writer in writers:
            writer.close()
    await until(lambda: len(log.statuses()) == CLIENTS)
    assert log.statuses() == [499] * CLIENTS
    assert [fetch["verdict"] for fetch in log.fetches()] == ["abandoned"] * PLACES
    await until(lambda: lab.answering == 0)  # these servers go on until their client is gone
    assert patient.post(asking(patient, at("/ok.png"))).status == 200
    assert len(lab.requests) == PLACES + 1
    await until(lambda: log.statuses() == [499] * CLIENTS + [200])
