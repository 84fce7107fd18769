"""One Chromium for all tests here, a tab of its own for each, and an edge with people."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from edge.auth.accounts import User
from shared.ids import new_record_id
from tests.browser.browser import prepare_chromium
from tests.browser.page import WITHIN_MS, DevicePage
from tests.integration.edge.parts import Edge, running_edge, running_redis
from tests.integration.edge.people import make_user
from tests.redis_server import free_port, url_of

FEW_FAILURES = 3


@pytest.fixture(scope="package")  # and no longer: what runs after these may look at the processes of all tests
async def chromium() -> AsyncIterator[Browser]:
    launch = prepare_chromium()
    expect.set_options(timeout=WITHIN_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**launch)
        yield browser
        await browser.close()


@pytest.fixture
async def profile(chromium: Browser) -> AsyncIterator[BrowserContext]:
    """A browser that knows nothing yet."""
    context = await chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WITHIN_MS)
    yield context
    await context.close()


@pytest.fixture
async def tab(profile: BrowserContext) -> Page:
    return await profile.new_page()


@pytest.fixture(scope="package")
async def people_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A Redis for all edges here."""
    port = free_port()
    async with running_redis(tmp_path_factory.mktemp("redis"), port):
        yield url_of("edge", port)


@pytest.fixture
async def edge(people_url: str) -> AsyncIterator[Edge]:
    """No node behind it; few log-ins of an account may fail."""
    node = {"n1": "http://127.0.0.1:1"}
    async with running_edge(people_url, node, login_failures_per_account=FEW_FAILURES) as running:
        yield running


@pytest.fixture
async def owner(edge: Edge) -> User:
    """An owner of an organization of his own."""
    return await make_user(edge, (new_record_id("org").replace("_", "-"), "owner"))


@pytest.fixture
def page(tab: Page, edge: Edge) -> DevicePage:
    return DevicePage(tab, edge.url)


@pytest.fixture(scope="package")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go, for people."""
    return tmp_path_factory.mktemp("pictures")
