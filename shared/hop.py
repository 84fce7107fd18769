"""Headers between edges and nodes that no client sends or sees: an edge passes on none that it does not list."""

from __future__ import annotations

NOT_STARTED = "x-b3os-not-started"
"""A node that refuses with it has done nothing for the request, so that another may take it."""
FORWARDED = "x-b3os-forwarded"
"""A request with it was passed on by a node, and is passed on no further."""
REPEATED = "x-b3os-repeated"
"""A request with it went to another node before, which may have let it in; it holds the how many-th this one is."""
