"""The route of usage: what an organization's requests took and cost, by day, key or model.

Decides which spans are answered and how rows are summed. Must not know who counts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from aiohttp import web

from edge.api.body import invalid
from edge.api.caller import identify, org_of
from edge.api.query import read_query
from edge.api.render import private_json
from edge.auth.authenticate import Authenticator
from edge.auth.store import answering
from shared.usage import COUNTED, UsageReader

MOST_DAYS = 366
By = Literal["day", "key", "model"]
_FIELDS: dict[By, Literal["day", "key_id", "model"]] = {"day": "day", "key": "key_id", "model": "model"}
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Span:
    """Days of UTC, both included, and how they are summed."""

    by: By
    first: date
    last: date


class UsageRoutes:
    """Handler of `/v1/usage`."""

    def __init__(self, authenticator: Authenticator, reader: UsageReader, wall_clock: Callable[[], float]) -> None:
        """`wall_clock` gives Unix seconds."""
        self._authenticator = authenticator
        self._reader = reader
        self._wall_clock = wall_clock

    async def show_usage(self, request: web.Request) -> web.Response:
        """`GET /v1/usage`: a row for each day, key or model that has any, and all of them together."""
        identity = await identify(self._authenticator, request, "usage:read")
        today = datetime.fromtimestamp(self._wall_clock(), UTC).date()
        span = parse_span(read_query(request, ("by", "from", "to")), today)
        sums = await self._fetch_sums(org_of(identity), span)
        total = _add(sums.values())
        return private_json(
            {
                "by": span.by,
                "from": span.first.isoformat(),
                "to": span.last.isoformat(),
                "data": [{_FIELDS[span.by]: group, **_render(sums[group])} for group in sorted(sums)],
                "total": _render(total),
            }
        )

    async def _fetch_sums(self, org: str, span: Span) -> dict[str, Counter[str]]:
        sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
        name = _FIELDS[span.by]
        async for counts in self._reader.scan_days(org, span.first, span.last, answering):
            for count in counts:
                sums[getattr(count, name)][count.counted] += count.value
        return sums


def parse_span(query: Mapping[str, str], today: date) -> Span:
    """Read the parameters. Without any it is the month of `today`, up to that day.

    Raises:
        ApiError: `INVALID_REQUEST`; one of them is out of bounds.
    """
    by = query.get("by", "day")
    if by not in _FIELDS:
        raise invalid("by", f"Input should be one of {', '.join(_FIELDS)}")
    last = _parse_day("to", query["to"]) if "to" in query else today
    first = _parse_day("from", query["from"]) if "from" in query else last.replace(day=1)
    if not timedelta() <= last - first < timedelta(days=MOST_DAYS):
        raise invalid("from", f"Input should not be after `to`, and with it be at most {MOST_DAYS} days")
    return Span(by, first, last)


def _parse_day(name: str, text: str) -> date:
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise invalid(name, "Input should be a day like 2030-01-31")


def _add(sums: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in sums:
        total.update(each)
    return total


def _render(sums: Counter[str]) -> dict[str, int]:
    return {name: sums[name] for name in COUNTED}
