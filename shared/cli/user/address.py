"""Where a server is.

Decides which base URLs are taken: with TLS, or of this machine, or by the word of the caller. Pure. Must not know who
calls what there.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from shared.cli.user.failure import USAGE, Failure

_SHAPE = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_SUFFIXES = ("/v1/infer/v1", "/v1/infer")
"""What base URLs of SDKs end with."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server. `prefix` is the path in front of `/v1`, mostly empty."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    prefix: str

    @property
    def authority(self) -> str:
        """Host and port, as they stand in a URL; the port only where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The one way in which this server is written."""
        return f"{self.scheme}://{self.authority}{self.prefix}"


def parse_address(text: str, *, insecure_http: bool) -> Address:
    """Read a base URL, with `/v1/infer` at its end or without.

    Raises:
        Failure: it is no base URL, or a credential would travel in clear.
    """
    try:
        return _parse(text, insecure_http=insecure_http)
    except ValueError as error:
        # The URL is not told back: somebody may have put a password into it.
        raise Failure(f"the base URL can't be used: {error}", USAGE) from None


def is_loopback(host: str) -> bool:
    """Whether what is sent to this host stays on the machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parse(text: str, *, insecure_http: bool) -> Address:
    if _SHAPE.fullmatch(text) is None:
        raise ValueError("it must look like https://HOST, in ASCII without spaces")
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("it must have no user, no query and no fragment")
    host, port = parts.hostname, parts.port  # a port out of range is a ValueError with words of its own
    if not host:
        raise ValueError("it names no host")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    if scheme == "http" and not is_loopback(host) and not insecure_http:
        raise ValueError("over http:// the key would travel in clear; use https://, or --insecure-http if you must")
    return Address(scheme, host, port or {"http": 80, "https": 443}[scheme], _prefix_of(parts.path))


def _prefix_of(path: str) -> str:
    path = path.rstrip("/")
    for suffix in _SUFFIXES:
        if path.endswith(suffix):
            return path.removesuffix(suffix).rstrip("/")
    return path
