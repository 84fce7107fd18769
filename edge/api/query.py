"""Read the query of a route that lists.

Decides that no parameter is ignored: a filter with a slip in its name would pass everything. Must not know any route.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from aiohttp import web

from edge.api.body import invalid

_NUMBER = re.compile(r"[1-9][0-9]{0,3}")


def read_query(request: web.Request, names: Collection[str]) -> dict[str, str]:
    """The parameters that are there, each once.

    Raises:
        ApiError: `INVALID_REQUEST`; one is none of `names`, or is there twice.
    """
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in names:
            raise invalid(name, "there is no such parameter")
        if name in found:
            raise invalid(name, "the parameter is there twice")
        found[name] = value
    return found


def parse_limit(query: Mapping[str, str], usual: int, most: int) -> int:
    """How long a page is wanted.

    Raises:
        ApiError: `INVALID_REQUEST`; it is no number from 1 to `most`.
    """
    text = query.get("limit", str(usual))
    if _NUMBER.fullmatch(text) is None or not 1 <= int(text) <= most:
        raise invalid("limit", f"Input should be a whole number from 1 to {most}")
    return int(text)


def parse_cursor(query: Mapping[str, str], form: re.Pattern[str]) -> str | None:
    """Where a page begins, if that is said.

    Raises:
        ApiError: `INVALID_REQUEST`; it is no `form`.
    """
    cursor = query.get("cursor")
    if cursor is not None and form.fullmatch(cursor) is None:
        raise invalid("cursor", "Input should be the next_cursor of an earlier page")
    return cursor
