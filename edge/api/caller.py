"""Who asks on a route that is not inference, and in which organization.

Decides what is noted of him for the log. Must not know how callers prove themselves, nor any route.
"""

from __future__ import annotations

from aiohttp import web

from edge.auth.authenticate import Authenticator, Identity, KeyIdentity, SessionIdentity
from shared.web import CONTEXT


async def identify(authenticator: Authenticator, request: web.Request, scope: str) -> Identity:
    """The caller, who has the right to `scope`.

    Raises:
        ApiError: as `Authenticator.identify`.
    """
    context = request[CONTEXT]
    with context.phases.measure("edge_auth"):
        identity = await authenticator.identify(request, scope)
    context.facts.update(org=identity.record.org, actor=identity.record.id)
    return identity


def org_of(identity: Identity) -> str:
    """The organization that a caller with a scope works in: whatever he asks for is looked for there alone."""
    match identity:
        case KeyIdentity(record=key):
            return key.org
        case SessionIdentity(record=session):
            return session.org or ""  # one without an organization has no scope, and was refused
