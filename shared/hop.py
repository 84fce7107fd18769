"""Headers between edges and nodes: those that no client sends or sees, and those of an answer that pass to him."""

from __future__ import annotations

NOT_STARTED = "x-b3os-not-started"
"""A node that refuses with it has done nothing for the request, so that another may take it."""
FORWARDED = "x-b3os-forwarded"
"""A request with it was passed on by a node, and is passed on no further."""
REPEATED = "x-b3os-repeated"
"""A request with it went to another node before, which may have let it in; it holds the how many-th this one is."""
FOR_CLIENTS = (
    "Content-Type",
    "Retry-After",
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "x-should-retry",
    "x-b3os-ignored",
)
"""What passes of a node's answer, by an edge and by a node that passed the request on."""
STREAM_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
"""Proxies on the way must neither transform nor gather a stream."""
