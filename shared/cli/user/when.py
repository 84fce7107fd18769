"""Points in time on the command line.

Pure: the clock is an argument.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_SPAN = re.compile(r"([0-9]{1,5})([hdw])")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOURS = {"h": 1, "d": 24, "w": 168}


def parse_expiry(text: str, now: datetime) -> str:
    """`12h`, `30d`, `8w`, a day (its end in UTC) or a time with its offset, as RFC 3339 in UTC.

    Raises:
        ValueError: it is none of these.
    """
    span = _SPAN.fullmatch(text)
    if span is not None:
        at = now + timedelta(hours=int(span[1]) * _HOURS[span[2]])
    elif _DAY.fullmatch(text):
        at = datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=1)
    else:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError("a time needs its offset")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_day(text: str) -> str:
    """A day as the wire has it.

    Raises:
        ValueError: it is no day of the calendar.
    """
    if _DAY.fullmatch(text) is None:
        raise ValueError("a day looks like 2026-11-30")
    return datetime.fromisoformat(text).date().isoformat()
