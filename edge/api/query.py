"""Read the query of a route that lists.

Decides that no parameter is ignored: a filter with a slip in its name would pass everything. Must not know any route.
"""

from __future__ import annotations

from collections.abc import Collection

from aiohttp import web

from edge.api.body import invalid


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
