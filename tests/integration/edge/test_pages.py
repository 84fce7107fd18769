"""The files of the page for log-in by device, as they are sent; tests/browser has what becomes of them."""

from __future__ import annotations

import re

import aiohttp
import pytest

from edge.pages.served import PATHS
from tests.integration.edge.parts import Edge
from tests.integration.edge.people import Page

KINDS = {"/device": "text/html", "/device/page.css": "text/css", "/device/page.js": "text/javascript"}


@pytest.mark.parametrize("path", PATHS)
async def test_a_browser_is_told_how_little_the_page_may_do(client: aiohttp.ClientSession, path: str) -> None:
    async with client.get(path) as answer:
        text, headers = await answer.text(), answer.headers
    assert answer.status == 200
    assert headers["Content-Type"] == f"{KINDS[path]}; charset=utf-8"
    assert text
    policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("no-referrer", "no-store")
    assert (headers["X-Content-Type-Options"], headers["Cross-Origin-Opener-Policy"]) == ("nosniff", "same-origin")
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


async def test_the_page_names_no_files_but_its_own(client: aiohttp.ClientSession) -> None:
    async with client.get("/device") as answer:
        text = await answer.text()
    assert set(re.findall(r'(?:src|href)="([^"]*)"', text)) == set(PATHS) - {"/device"}
    assert not re.search(r"<style|<script>|\son\w+=|\sstyle=|//", text)  # nothing that the policy would refuse


@pytest.mark.parametrize("path", PATHS)
async def test_under_other_names_is_no_page(edge: Edge, page: Page, path: str) -> None:
    answer = await page.get(path, Host="api.example.com")
    assert answer.problem() == (404, "not_found", None)
    answer = await page.get(path, Host=f"127.0.0.1:{edge.port + 1}")
    assert answer.status == 404
