"""A URL as text to the host, port and path that it means, by a grammar of our own.

Decides which URLs are read at all. No library reads one before it has passed here, since they repair what they should
refuse: spaces, tabs, full-width digits, backslashes. Must not know DNS: what a name leads to is decided later.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urljoin

from node.images.verdict import EgressRefused, Verdict

SCHEME = "https://"
MAX_URL_CHARACTERS = 2048
MAX_HOST_CHARACTERS = 253
_PRINTABLE = re.compile(r"[!-\[\]-~]*")
"""0x21 to 0x7E without the backslash, which browsers take for a slash."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_AUTHORITY_END = re.compile(r"[/?#]")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_HOST = re.compile(r"[a-z0-9._-]+")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_TOP_LABEL = re.compile(r"[a-z]+|xn--[a-z0-9-]+")
_PRIVATE_TOPS = frozenset(
    {
        *("alt", "arpa", "i2p", "invalid", "local", "localhost", "onion", "test"),
        *("corp", "home", "internal", "intranet", "lan", "localdomain", "private"),
    }
)
"""Top labels that no public name has: special-use ones (RFC 6761 and after), and what private networks use."""


@dataclass(frozen=True, slots=True)
class Target:
    """One HTTPS request: `path` goes into the request line byte for byte, query included."""

    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The value of `Host`."""
        return self.host if self.port == 443 else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL again, without a fragment."""
        return f"{SCHEME}{self.authority}{self.path}"


def parse_url(text: str, ports: Collection[int]) -> Target:
    """Read an absolute URL; every step here can be done without a packet.

    Raises:
        EgressRefused: with the first rule that it breaks.
    """
    if len(text) > MAX_URL_CHARACTERS:
        raise EgressRefused(Verdict.TOO_LONG)
    if not _PRINTABLE.fullmatch(text):
        raise EgressRefused(Verdict.BAD_CHARACTER)
    if not text.startswith(SCHEME):
        raise EgressRefused(Verdict.NOT_HTTPS)
    rest = text[len(SCHEME) :]
    end = _AUTHORITY_END.search(rest)
    authority, tail = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    host, port = _parse_authority(authority)
    if port not in ports:
        raise EgressRefused(Verdict.FORBIDDEN_PORT, host)
    path = tail.partition("#")[0]
    return Target(host, port, path if path.startswith("/") else f"/{path}")


def resolve_redirect(base: Target, location: bytes, ports: Collection[int]) -> Target:
    """Read the `Location` of an answer to `base`.

    Raises:
        EgressRefused: with the first rule that the joined URL breaks.
    """
    text = location.decode("latin-1")
    if not _PRINTABLE.fullmatch(text):  # before urljoin, which deletes tabs and strips controls
        raise EgressRefused(Verdict.BAD_CHARACTER)
    if not text:
        raise EgressRefused(Verdict.BAD_REDIRECT, "an empty Location")
    if scheme := _SCHEME.match(text):  # RFC 9110 lets it be in capitals
        return parse_url(scheme[0].lower() + text[scheme.end() :], ports)
    if text.startswith("//"):
        return parse_url(f"https:{text}", ports)
    return parse_url(urljoin(base.url, text), ports)  # a path: the authority stays the base's


def _parse_authority(authority: str) -> tuple[str, int]:
    if "@" in authority:
        raise EgressRefused(Verdict.USERINFO)
    if authority.startswith("["):
        raise EgressRefused(Verdict.ADDRESS_LITERAL)
    name, colon, port = authority.partition(":")
    if not name:
        raise EgressRefused(Verdict.NO_HOST)
    if colon and not (_PORT.fullmatch(port) and int(port) <= 65535):
        raise EgressRefused(Verdict.BAD_PORT)
    host = name.lower()
    _check_host(host)
    return host, int(port) if colon else 443


def _check_host(host: str) -> None:
    if len(host) > MAX_HOST_CHARACTERS or not _HOST.fullmatch(host):
        raise EgressRefused(Verdict.BAD_HOST)
    labels = host.split(".")
    # The rule of the URL standard ("ends in a number"): it covers every spelling that inet_aton takes, and more.
    if _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]):
        raise EgressRefused(Verdict.ADDRESS_LITERAL)
    if labels[-1] in _PRIVATE_TOPS:
        raise EgressRefused(Verdict.PRIVATE_NAME, host)
    if len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)) or not _TOP_LABEL.fullmatch(labels[-1]):
        raise EgressRefused(Verdict.BAD_NAME, host)
