"""How answers of these routes are sent: no cache keeps what is one caller's own."""

from __future__ import annotations

from aiohttp import web

from shared.web import json_response


def private_json(body: object, *, status: int = 200) -> web.Response:
    """A JSON answer for this caller alone."""
    return json_response(body, status=status, headers={"Cache-Control": "no-store"})
