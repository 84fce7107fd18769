"""How a node tells its edge, and no client, that it has not begun with a request: another node may have it."""

from __future__ import annotations

from types import MappingProxyType

HEADER = "x-b3os-not-started"
NOT_STARTED = MappingProxyType({HEADER: "1"})
