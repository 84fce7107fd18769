"""Under which names the edge is a dashboard, and under which it serves programs alone.

Decides where a session counts. Must not know sessions. A name is what stands in `Host`: compared whole, in lower
case, port included, except that `:443` may be left out as browsers do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from edge.auth.credentials import Headers

_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]+)?")


def normalize_host(text: str) -> str:
    """The form in which names are compared.

    Raises:
        ValueError: it is no host name, address or either with a port.
    """
    name = text.strip().lower()
    if _HOST.fullmatch(name) is None:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    return name.removesuffix(":443")


def is_loopback(name: str) -> bool:
    """Whether the name can only mean this machine, to which browsers grant what they else demand TLS for."""
    return _LOOPBACK.fullmatch(name) is not None


class Hosts:
    """The names of the dashboard."""

    def __init__(self, dashboard: Iterable[str]) -> None:
        """At least one name, all in the form of `normalize_host`."""
        ordered = tuple(dashboard)
        self.first = ordered[0]
        self._dashboard = frozenset(ordered)

    def dashboard_of(self, headers: Headers) -> str | None:
        """The dashboard's name that the request was sent to; None under any other name, or under two."""
        named = headers.getall("Host", ())
        if len(named) != 1:
            return None
        name = named[0].lower().removesuffix(":443")
        return name if name in self._dashboard else None


def origins_of(host: str) -> tuple[str, ...]:
    """The origins that pages of this dashboard have (RFC 6454)."""
    return (f"https://{host}", f"http://{host}") if is_loopback(host) else (f"https://{host}",)
