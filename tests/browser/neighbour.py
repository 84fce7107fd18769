"""A site that is not ours, on this machine: what a victim of it opens, and what it tries then.

Decides by which ways a page can send to another origin. Must not know what comes of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from playwright.async_api import Page

from shared.serve import Site, serving
from shared.web import render_problem
from tests.redis_server import free_port

NAMES = {"another site": "localhost", "another port": "127.0.0.1"}
"""As browsers see it: cookies with SameSite don't go to the first, and go to the second like to ourselves."""

_FORM = """([enctype, url, body]) => {
  const form = Object.assign(document.createElement("form"), { method: "post", action: url, enctype });
  const fields = enctype === "text/plain" ? { [JSON.stringify(body).slice(0, -1) + ',"x":"']: '"}' } : body;
  for (const [name, value] of Object.entries(fields)) {
    form.append(Object.assign(document.createElement("input"), { name, value }));
  }
  document.body.append(form);
  form.submit();
}"""
_FETCH = """async ([mode, kind, url, body]) => {
  try {
    const headers = { "Content-Type": kind };
    await fetch(url, { method: "POST", mode, credentials: "include", headers, body: JSON.stringify(body) });
  } catch (error) {
    if (mode !== "cors" || !(error instanceof TypeError)) throw error;
  }
}"""
_BEACON = """([url, body]) => navigator.sendBeacon(url, new Blob([JSON.stringify(body)], { type: "text/plain" }))"""
_FRAME = """(url) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  frame.addEventListener("load", () => resolve());
  frame.src = url;
  document.body.append(frame);
})"""
_READ = """(url) => fetch(url, { credentials: "include" }).then((answer) => answer.text(), (error) => error.name)"""
WAYS = {
    "a form": (_FORM, ("application/x-www-form-urlencoded",)),
    "a form of text": (_FORM, ("text/plain",)),
    "a form of parts": (_FORM, ("multipart/form-data",)),
    "a fetch of text": (_FETCH, ("no-cors", "text/plain")),
    "a fetch of a form": (_FETCH, ("no-cors", "application/x-www-form-urlencoded")),
    "a fetch of JSON": (_FETCH, ("cors", "application/json")),
    "a beacon": (_BEACON, ()),
}


@dataclass(frozen=True)
class Neighbour:
    """The site under one of its names."""

    url: str

    async def send(self, tab: Page, way: str, url: str, body: dict[str, str]) -> None:
        """Have a page of this site send it."""
        await tab.goto(self.url)
        script, arguments = WAYS[way]
        if script is _FORM:
            async with tab.expect_navigation(url=url):
                await tab.evaluate(script, [*arguments, url, body])
        else:
            await tab.evaluate(script, [*arguments, url, body])

    async def lead(self, tab: Page, url: str) -> None:
        """Have the whole tab go there, as a link does: cookies with SameSite=Lax go along."""
        await tab.goto(self.url)
        async with tab.expect_navigation(url=url):
            await tab.evaluate("(url) => { location.href = url }", url)

    async def frame(self, tab: Page, url: str) -> list[str]:
        """Show a page inside one of this site; the headings that are seen in it."""
        await tab.goto(self.url)
        await tab.evaluate(_FRAME, url)
        return await tab.frames[-1].locator("h1").all_text_contents()

    async def read(self, tab: Page, url: str) -> str:
        """What a script of this site gets of it."""
        await tab.goto(self.url)
        told: str = await tab.evaluate(_READ, url)
        return told

    async def plant(self, tab: Page, cookie: str) -> None:
        """Set a cookie for the host, whatever port of it."""
        await tab.goto(f"{self.url}plant?cookie={cookie}")


@contextlib.asynccontextmanager
async def running_neighbour() -> AsyncIterator[dict[str, Neighbour]]:
    """Both of its names."""
    app = web.Application()
    app.router.add_get("/", _serve)
    app.router.add_get("/plant", _plant)
    port = free_port()
    async with serving([Site(app, render_problem, "127.0.0.1", port)], drain_s=0):
        yield {name: Neighbour(f"http://{host}:{port}/") for name, host in NAMES.items()}


async def _serve(request: web.Request) -> web.Response:
    del request
    return web.Response(text="<!doctype html><title>Win</title><h1>You have won</h1>", content_type="text/html")


async def _plant(request: web.Request) -> web.Response:
    headers: dict[str, Any] = {"Set-Cookie": f"{request.query['cookie']}; Path=/; Secure; HttpOnly"}
    return web.Response(text="planted", headers=headers)
