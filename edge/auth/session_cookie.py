"""The cookie of a session.

Decides its name and attributes, and what of a request's `Cookie` headers counts. Must not know what a session is.
`__Host-` has browsers refuse it from other hosts, other paths and without `Secure` (RFC 6265bis §4.1.3.2).
"""

from __future__ import annotations

from edge.auth.credentials import Headers
from edge.auth.sessions import is_value

NAME = "__Host-b3os_session"
_ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite=Lax"


def extract_values(headers: Headers) -> set[str]:
    """Every value that the request has for the cookie; one of a form that no session has is kept as an empty one."""
    found = set()
    for header in headers.getall("Cookie", ()):
        for pair in header.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == NAME:
                found.add(value if is_value(value) else "")
    return found


def build_cookie(value: str, lives_s: int) -> str:
    """`Set-Cookie` for a session that ends in `lives_s` seconds."""
    return f"{NAME}={value}; Max-Age={lives_s}; {_ATTRIBUTES}"


def build_removal() -> str:
    """`Set-Cookie` that has a browser forget it."""
    return f"{NAME}=; Max-Age=0; {_ATTRIBUTES}"
