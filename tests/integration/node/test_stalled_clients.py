"""A client that takes nothing any more, or only slowly, from a stream that would go on."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.node.conftest import Node

ENDLESS = [["repeat", 100_000, ["text", "x" * 1000]]]


async def test_a_client_that_takes_nothing_is_cut_off_and_its_generation_ends(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.sse.STALLED_CLIENT_S", 0.2)
    monkeypatch.setattr("aiohttp_sse._TCP_USER_TIMEOUT", None)  # Linux would do it, other systems don't
    response = await node.post(ENDLESS, stream=True, max_tokens=1_000_000)
    async with asyncio.timeout(60):
        while node.engine.unfinished_requests():
            await asyncio.sleep(0.05)
    response.close()


async def test_a_client_that_is_slower_than_the_model_gets_everything(node: Node) -> None:
    script = [["repeat", 2000, ["text", "x" * 1000]]]
    response = await node.post(script, stream=True, max_tokens=10_000)
    size = 0
    async for chunk in response.content.iter_chunked(100_000):
        size += chunk.count(b"x")
        await asyncio.sleep(0.005)
    assert size > 2000 * 1000
