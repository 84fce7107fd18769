"""The page where a person lets a program in (log-in by device): its files, as browsers get them.

Decides their paths, under which names they are there, and what a browser lets the page do. Must not know what is on
it: the page asks the API like any other client.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from edge.auth.hosts import Hosts
from shared.errors import ROUTE_NOT_FOUND, ApiError

DEVICE_PAGE = "/device"
_FOLDER = Path(__file__).parent
_FILES = {
    DEVICE_PAGE: ("device.html", "text/html"),
    f"{DEVICE_PAGE}/page.css": ("device.css", "text/css"),
    f"{DEVICE_PAGE}/page.js": ("device.js", "text/javascript"),
}
PATHS = tuple(_FILES)
_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "require-trusted-types-for 'script'",  # text that is set as HTML is an error, not a script
    "trusted-types 'none'",
)
HEADERS = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address has the code of whoever waits
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of the page; `hosts` has the names of the dashboard, where alone it is."""

    body: bytes
    content_type: str
    hosts: Hosts

    async def serve(self, request: web.Request) -> web.Response:
        """The file.

        Raises:
            ApiError: `ROUTE_NOT_FOUND`; under this name is no page, since no session counts there.
        """
        if self.hosts.dashboard_of(request.headers) is None:
            raise ApiError(ROUTE_NOT_FOUND, "pages are under the host names of the dashboard alone")
        return web.Response(body=self.body, content_type=self.content_type, charset="utf-8", headers=HEADERS)


def load_pages(hosts: Hosts) -> dict[str, PageFile]:
    """All files by path, read once.

    Raises:
        OSError: one is missing, and so is a part of this package.
    """
    return {path: PageFile((_FOLDER / name).read_bytes(), kind, hosts) for path, (name, kind) in _FILES.items()}
