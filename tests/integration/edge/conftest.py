"""One redis-server for all tests of the edge; a node, an edge, a key and a client for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from edge.auth.accounts import User
from tests.integration.edge.parts import (
    Edge,
    FakeNode,
    make_key,
    running_edge,
    running_node,
    running_redis,
)
from tests.integration.edge.people import Page, make_user
from tests.redis_server import free_port, url_of


@pytest.fixture(scope="session")
async def edge_redis_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder: Path = tmp_path_factory.mktemp("redis")
    port = free_port()
    async with running_redis(folder, port):
        yield url_of("edge", port)


@pytest.fixture(autouse=True)
def nodes_have_time_to_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in this process."""
    monkeypatch.setattr("edge.upstream.TAKEOVER_S", 60.0)


@pytest.fixture
def remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an edge remembers grows not old: it can only have been told of a change, however long a test waits."""
    monkeypatch.setattr("edge.auth.cache.POSITIVE_S", 86_400.0)
    monkeypatch.setattr("edge.auth.cache.NEGATIVE_S", 86_400.0)


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    async with running_node() as running:
        yield running


@pytest.fixture
async def edge(edge_redis_url: str, node: FakeNode) -> AsyncIterator[Edge]:
    async with running_edge(edge_redis_url, {node.id: f"http://127.0.0.1:{node.port}"}) as running:
        yield running


@pytest.fixture
async def key(edge: Edge) -> str:
    return (await make_key(edge.store))[1].token


@pytest.fixture
async def client(edge: Edge) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(edge.url, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session


@pytest.fixture
def page(client: aiohttp.ClientSession) -> Page:
    """A page of the dashboard that has no session yet."""
    return Page(client)


@pytest.fixture
async def owner(edge: Edge, page: Page) -> User:
    """An owner of `acme`, logged in on `page`."""
    user = await make_user(edge, ("acme", "owner"))
    await page.log_in(user)
    return user
