"""Whether a request that carries a cookie was meant by the page that it belongs to.

Decides by headers that no other site can forge. Must not know routes or sessions.
"""

from __future__ import annotations

import hmac

from edge.auth.credentials import Headers
from edge.auth.hosts import origins_of
from shared.errors import FORBIDDEN, ApiError

SAFE_METHODS = frozenset({"GET", "HEAD"})
TOKEN_HEADER = "x-b3os-csrf"  # noqa: S105 - the name of a header


def refuse_other_sites(headers: Headers, host: str) -> None:
    """Let pass what a page of `host` sent, or what is no browser at all: browsers send at least one of the two.

    Raises:
        ApiError: `FORBIDDEN`; another site's page sent it, or a page of another origin.
    """
    sites = headers.getall("Sec-Fetch-Site", ())
    origins = headers.getall("Origin", ())
    if any(site != "same-origin" for site in sites):
        raise ApiError(FORBIDDEN, "the request comes from another site: Sec-Fetch-Site is not same-origin")
    if not sites and any(origin not in origins_of(host) for origin in origins):
        raise ApiError(FORBIDDEN, "the request comes from another site: Origin is not this one")


def refuse_without_token(headers: Headers, token: str) -> None:
    """Demand the session's token, compared in constant time.

    Raises:
        ApiError: `FORBIDDEN`; it is missing, wrong, or there twice.
    """
    sent = headers.getall(TOKEN_HEADER, ())
    if len(sent) != 1 or not hmac.compare_digest(sent[0].encode("utf-8", "surrogateescape"), token.encode()):
        raise ApiError(FORBIDDEN, f"the header {TOKEN_HEADER} is missing or is not this session's token")
