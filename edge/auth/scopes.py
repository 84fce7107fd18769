"""What a caller may do: the scopes, and the roles that give them to people.

Decides what each role may. Must not know who has which role.
"""

from __future__ import annotations

from collections.abc import Iterable

SCOPES = ("infer:run", "models:read", "keys:read", "keys:write", "requests:read", "usage:read")
INFERENCE_SCOPES = SCOPES[:2]
"""What a key gets that was made without a word about scopes."""

ROLES = {
    "owner": SCOPES,
    "admin": SCOPES,
    "member": ("infer:run", "models:read", "keys:read", "requests:read", "usage:read"),
}


def order_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Each once, in the order of `SCOPES`; what is no scope is left out."""
    wanted = set(scopes)
    return tuple(scope for scope in SCOPES if scope in wanted)
