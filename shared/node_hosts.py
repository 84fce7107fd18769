"""Where a node may be that tells its address in Redis.

Decides by a list of the operator's, networks and names: who can write Redis must not become able to have prompts and
tokens sent anywhere. A name has to be listed, so it is the operator's, and nobody looks at what it resolves to.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

PRIVATE = ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "localhost")
"""This machine and private networks. Link-local addresses are none of them: clouds tell secrets there."""


class NodeHosts:
    """The list, read."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Raises ValueError: an entry is neither a network nor a name; the message is for an operator."""
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: set[str] = set()
        self._suffixes: list[str] = []
        for entry in entries:
            self._add(entry.strip().lower())

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ip_network(entry))
        except ValueError:
            name = entry.removeprefix("*.")
            if not name or "/" in name or ":" in name or not name.replace("-", "").replace(".", "").isalnum():
                raise ValueError(f"{entry!r} is no network, no name, and no name behind *.") from None
            if name == entry:
                self._names.add(name)
            else:
                self._suffixes.append("." + name)

    def allows(self, url: str) -> bool:
        """Whether a base URL is one of a node that may be believed."""
        host = host_of(url)
        if host is None:
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return host in self._names or any(host.endswith(suffix) for suffix in self._suffixes)
        return any(address in network for network in self._networks)


def host_of(url: str) -> str | None:
    """The host of `http://HOST:PORT` or `https://…`, in lower case; None for all that is more or less than this."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or not url.isascii():
        return None
    if any(character in url for character in "\\@ \t\r\n%"):
        return None
    return parts.hostname
