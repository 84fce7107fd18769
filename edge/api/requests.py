"""The routes of the request log: list, and show one.

Decides which queries are taken and how a record is told. Must not know how records are stored or written. The
organization is the caller's, and part of every name that is read: another's id is not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from aiohttp import web

from edge.api.body import invalid
from edge.api.caller import identify, org_of
from edge.api.query import parse_cursor, parse_limit, read_query
from edge.api.render import private_json
from edge.auth.authenticate import Authenticator
from edge.auth.store import answering
from edge.times import iso_ms
from shared.errors import NO_SUCH_RECORD, ApiError
from shared.ids import REQUEST_ID
from shared.request_log import LogFilter, Outcome, RequestLog, RequestRecord

USUAL_LIMIT = 20
MOST_OF_A_PAGE = 100
LONGEST_KEY_ID = 64
LONGEST_MODEL = 200
_PARAMETERS = ("limit", "cursor", "key", "model", "status")
_STATUS = re.compile("|".join((r"[1-5][0-9]{2}", *get_args(Outcome))))


@dataclass(frozen=True, slots=True)
class Listing:
    """What is to be listed."""

    wanted: LogFilter
    limit: int
    cursor: str | None


class RequestRoutes:
    """Handlers of `/v1/requests`."""

    def __init__(self, authenticator: Authenticator, log: RequestLog) -> None:
        self._authenticator = authenticator
        self._log = log

    async def list_requests(self, request: web.Request) -> web.Response:
        """`GET /v1/requests`: those of the caller's organization, newest first, running ones included."""
        identity = await identify(self._authenticator, request, "requests:read")
        listing = parse_listing(read_query(request, _PARAMETERS))
        async with answering():
            page = await self._log.fetch_page(
                org_of(identity), listing.wanted, cursor=listing.cursor, limit=listing.limit
            )
        return private_json({"data": [render_record(each) for each in page.records], "next_cursor": page.cursor})

    async def show_request(self, request: web.Request) -> web.Response:
        """`GET /v1/requests/{id}`: one record."""
        identity = await identify(self._authenticator, request, "requests:read")
        request_id = request.match_info["id"]
        record = None
        if REQUEST_ID.fullmatch(request_id):
            async with answering():
                record = await self._log.fetch(org_of(identity), request_id)
        if record is None:
            raise ApiError(NO_SUCH_RECORD, "your organization has no request of this id in 30 days", param="id")
        return private_json(render_record(record))


def parse_listing(query: Mapping[str, str]) -> Listing:
    """Read the parameters of a listing.

    Raises:
        ApiError: `INVALID_REQUEST`; one of them is out of bounds.
    """
    limit, cursor = parse_limit(query, USUAL_LIMIT, MOST_OF_A_PAGE), parse_cursor(query, REQUEST_ID)
    status = query.get("status")
    if status is not None and _STATUS.fullmatch(status) is None:
        raise invalid("status", f"Input should be an HTTP status, or one of {', '.join(get_args(Outcome))}")
    for name, longest in (("key", LONGEST_KEY_ID), ("model", LONGEST_MODEL)):
        if name in query and not 1 <= len(query[name]) <= longest:
            raise invalid(name, f"Input should have 1 to {longest} characters")
    wanted = LogFilter(query.get("key"), query.get("model"), status)
    return Listing(wanted, limit, cursor)


def render_record(record: RequestRecord) -> dict[str, object]:
    """All that is known of a request: no prompt, no answer, no key."""
    return {
        "id": record.id,
        "created_at": iso_ms(record.created_ms),
        "key_id": record.key_id,
        "project": record.project,
        "model": record.model,
        "node": record.node,
        "outcome": record.outcome,
        "status": record.status,
        "error_code": record.error_code,
        "stop_reason": record.stop_reason,
        "usage": {
            "input_tokens": record.input_tokens,
            "output_tokens": record.output_tokens,
            "cached_tokens": record.cached_tokens,
            "image_bytes": record.image_bytes,
        },
        "cost_nano_usd": record.cost_nano_usd,
        "price": record.price,
        "ttft_ms": record.ttft_ms,
        "total_ms": record.total_ms,
        "phases_ms": dict(record.phases_ms),
    }
