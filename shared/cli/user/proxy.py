"""Which proxy a connection goes through, as `HTTPS_PROXY` and `NO_PROXY` say.

Decides that only TLS is proxied: a proxy must never see a key, and what is on this machine needs none.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from shared.cli.user.address import Address, is_loopback
from shared.cli.user.failure import USAGE, Failure


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where to send CONNECT, and with which headers."""

    host: str
    port: int
    headers: dict[str, str]


def find_proxy(address: Address) -> Proxy | None:
    """The proxy of the environment for this server, if there is one.

    Raises:
        Failure: the variable can't be used.
    """
    named = getproxies().get("https")
    if not named or address.scheme != "https" or is_loopback(address.host) or proxy_bypass(address.authority):
        return None
    try:
        return parse_proxy(named)
    except ValueError:  # its words may hold the proxy's password
        raise Failure("HTTPS_PROXY can't be used: it must look like http://HOST:PORT", USAGE) from None


def parse_proxy(text: str) -> Proxy:
    """Read a proxy's URL; without a scheme it is http.

    Raises:
        ValueError: it is no URL of an HTTP proxy.
    """
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError
    headers = {}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(parts.hostname, parts.port or 80, headers)
