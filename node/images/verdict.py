"""The names of everything that the egress guard can decide, and what the caller hears of each.

Decides which decisions are the caller's mistake, which are refusals of the guard, and their words. Must not know how
a decision was reached. No sentence tells an address, a port that was tried, a header or a byte of an answer, and all
that DNS can lead to shares one sentence, so that nobody learns which internal names exist.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from node.wire.faults import UNREADABLE
from shared.errors import EGRESS_DENIED, IMAGE_KIND, INVALID_REQUEST, ApiError, Condition


class Verdict(StrEnum):
    """One decision; the log, the counts and the tests use these names."""

    DELIVERED = "delivered"
    # What the URL says, before any packet leaves.
    TOO_MANY_URLS = "too_many_urls"
    TOO_LONG = "too_long"
    BAD_CHARACTER = "bad_character"
    NOT_HTTPS = "not_https"
    USERINFO = "userinfo"
    ADDRESS_LITERAL = "address_literal"
    NO_HOST = "no_host"
    BAD_PORT = "bad_port"
    BAD_HOST = "bad_host"
    BAD_NAME = "bad_name"
    PRIVATE_NAME = "private_name"
    FORBIDDEN_PORT = "forbidden_port"
    # What its name leads to. The first two let an address pass.
    PUBLIC_ADDRESS = "public_address"
    ALLOWED_ADDRESS = "allowed_address"
    DENIED_ADDRESS = "denied_address"
    OWN_ADDRESS = "own_address"
    CARRIES_IPV4 = "carries_ipv4"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    SHARED = "shared"
    LINK_LOCAL = "link_local"
    PLATFORM = "platform"
    SPECIAL_PURPOSE = "special_purpose"
    DOCUMENTATION = "documentation"
    MULTICAST = "multicast"
    RESERVED = "reserved"
    ZONED = "zoned"
    NOT_AN_ADDRESS = "not_an_address"
    NO_ROUTE = "no_route"
    NO_ADDRESS = "no_address"
    TOO_MANY_ADDRESSES = "too_many_addresses"
    # What its server does.
    UNREACHABLE = "unreachable"
    TLS_FAILED = "tls_failed"
    BAD_CERTIFICATE = "bad_certificate"
    BAD_REDIRECT = "bad_redirect"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    BAD_STATUS = "bad_status"
    ENCODED = "encoded"
    TOO_LARGE = "too_large"
    TOO_WORDY = "too_wordy"
    MALFORMED = "malformed"
    INCOMPLETE = "incomplete"
    STALLED = "stalled"
    TOO_SLOW = "too_slow"
    NOT_AN_IMAGE = "not_an_image"
    # What ended a fetch from this side; never told by the guard.
    OVER_BUDGET = "over_budget"
    ABANDONED = "abandoned"
    FAULT = "fault"


PASSING = frozenset({Verdict.PUBLIC_ADDRESS, Verdict.ALLOWED_ADDRESS})
"""The verdicts on an address that let it be dialled."""

_NOWHERE = (EGRESS_DENIED, "images are not fetched from the host of this URL")
_LATE = (INVALID_REQUEST, "the image was not fetched in time")
_UNREADABLE = (INVALID_REQUEST, "the server's answer could not be read")
_UNREACHABLE = (INVALID_REQUEST, "no secure connection to the host of this URL came about")
_TOLD: dict[Verdict, tuple[Condition, str]] = {
    Verdict.TOO_MANY_URLS: (INVALID_REQUEST, "too many image URLs in a request"),
    Verdict.TOO_LONG: (INVALID_REQUEST, "the URL has more than 2048 characters"),
    Verdict.BAD_CHARACTER: (
        INVALID_REQUEST,
        "the URL holds a character that is not printable ASCII, a space or a backslash; percent-encode it",
    ),
    Verdict.NOT_HTTPS: (INVALID_REQUEST, "the URL must begin with https://"),
    Verdict.USERINFO: (EGRESS_DENIED, "URLs with a user name or password are not fetched"),
    Verdict.ADDRESS_LITERAL: (EGRESS_DENIED, "URLs with an IP address instead of a host name are not fetched"),
    Verdict.NO_HOST: (INVALID_REQUEST, "the URL has no host"),
    Verdict.BAD_PORT: (INVALID_REQUEST, "the port of the URL is not a number from 1 to 65535"),
    Verdict.BAD_HOST: (INVALID_REQUEST, "the host of the URL is not a host name"),
    Verdict.FORBIDDEN_PORT: (EGRESS_DENIED, "images are not fetched from this port"),
    Verdict.UNREACHABLE: _UNREACHABLE,
    Verdict.TLS_FAILED: _UNREACHABLE,
    Verdict.BAD_CERTIFICATE: (INVALID_REQUEST, "the certificate of the host of this URL is not valid for it"),
    Verdict.TOO_MANY_REDIRECTS: (EGRESS_DENIED, "the URL redirects too many times"),
    Verdict.BAD_STATUS: (INVALID_REQUEST, "the server did not answer with the image (HTTP 200)"),
    Verdict.ENCODED: (INVALID_REQUEST, "the server sent the image compressed though it was asked not to"),
    Verdict.TOO_LARGE: (INVALID_REQUEST, "the image is larger than this node fetches"),
    Verdict.TOO_WORDY: _UNREADABLE,
    Verdict.MALFORMED: _UNREADABLE,
    Verdict.INCOMPLETE: (INVALID_REQUEST, "the server broke off before the end of the image"),
    Verdict.STALLED: _LATE,
    Verdict.TOO_SLOW: _LATE,
    Verdict.NOT_AN_IMAGE: (IMAGE_KIND, "not a PNG, JPEG, WebP or GIF image"),
}
_BAD_REDIRECT = (EGRESS_DENIED, "the URL redirects to where images are not fetched from")
_OF_THE_URL = frozenset(
    {
        Verdict.TOO_LONG,
        Verdict.BAD_CHARACTER,
        Verdict.NOT_HTTPS,
        Verdict.USERINFO,
        Verdict.ADDRESS_LITERAL,
        Verdict.NO_HOST,
        Verdict.BAD_PORT,
        Verdict.BAD_HOST,
        Verdict.BAD_NAME,
        Verdict.PRIVATE_NAME,
        Verdict.FORBIDDEN_PORT,
        Verdict.BAD_REDIRECT,
    }
)


@dataclass(slots=True, eq=False)
class EgressRefused(Exception):
    """No image came of a URL.

    Attributes:
        verdict: why.
        detail: more of it for the log, never for the caller.
        hop: how many redirects were followed before.
        url: the caller's URL, by which the stage that answers finds the block; for the caller only.
    """

    verdict: Verdict
    detail: str = ""
    hop: int = 0
    url: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.verdict} {self.detail}".rstrip()

    def api_error(self, param: str) -> ApiError:
        """What the caller hears; `param` is the path of the block's `source.url`.

        A name that the guard refuses, or that leads nowhere, is one condition whatever the reason. Whatever is wrong
        with the URL of a redirect is the server's doing and no mistake in the request, hence a refusal too.
        """
        told = _BAD_REDIRECT if self.hop and self.verdict in _OF_THE_URL else _TOLD.get(self.verdict, _NOWHERE)
        condition, sentence = told
        return ApiError(condition, f"{param}: {UNREADABLE}: {sentence}", param=param)


@dataclass(slots=True)
class EgressCounts:
    """What became of all fetches since the start, for whoever exports metrics."""

    by_verdict: Counter[Verdict] = field(default_factory=Counter)
    received_bytes: int = 0

    def add(self, verdict: Verdict, received_bytes: int) -> None:
        """Count one finished fetch."""
        self.by_verdict[verdict] += 1
        self.received_bytes += received_bytes
