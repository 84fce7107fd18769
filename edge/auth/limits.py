"""The limits of an organization, which the node enforces.

Decides their names and how they lie in an organization's hash. Must not know what is counted against them.
"""

from __future__ import annotations

from collections.abc import Mapping

LIMITS = ("requests_per_minute", "tokens_per_minute", "image_bytes_per_minute", "concurrent_requests")
MAX_LIMIT = 10**12
_PREFIX = "limit_"


def limit_field(name: str) -> str:
    """The field of an organization's hash that holds a limit."""
    return _PREFIX + name


def read_limits(organization: Mapping[str, str]) -> dict[str, int]:
    """The limits that are set in an organization's hash."""
    return {name: int(organization[_PREFIX + name]) for name in LIMITS if _PREFIX + name in organization}
