"""From the headers of a request to who is calling.

Decides the order of the checks, cheapest first, and what a refusal may tell: faults of form are named, while unknown,
revoked and expired keys share one sentence. Must not know routes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from edge.auth.credentials import Headers, extract_credential, unauthorized
from edge.auth.key_cache import KeyCache
from edge.auth.key_store import KeyRecord, StoreUnavailable
from shared.errors import FORBIDDEN, NODE_UNAVAILABLE, ApiError
from shared.node_token import Caller

_KINDS = {"sk": "key", "pat": "token"}
_log = logging.getLogger("b3os.edge.auth")


class Authenticator:
    """Knows callers by their keys."""

    def __init__(self, cache: KeyCache, wall_clock: Callable[[], float]) -> None:
        """`wall_clock` gives Unix seconds, for expiry."""
        self._cache = cache
        self._wall_clock = wall_clock

    async def authenticate(self, headers: Headers, scope: str) -> Caller:
        """Who is calling, with the right to `scope`.

        Raises:
            ApiError: `UNAUTHORIZED`, `FORBIDDEN`, or `NODE_UNAVAILABLE`: not cached, and Redis is away.
        """
        credential = extract_credential(headers)
        record = await self._find(credential.digest)
        if record is None or record.kind != credential.kind or not record.is_usable(self._wall_clock()):
            raise unauthorized("the API key is not valid")
        if scope not in record.scopes:
            raise ApiError(FORBIDDEN, f"the API key lacks the scope {scope}")
        return _caller(record)

    async def _find(self, digest: str) -> KeyRecord | None:
        try:
            return await self._cache.get(digest)
        except StoreUnavailable as error:
            _log.error("key lookup failed", extra={"facts": {"cause": str(error)}})
            raise ApiError(NODE_UNAVAILABLE, "API keys can't be checked right now", retry_after_s=1) from None


def _caller(record: KeyRecord) -> Caller:
    return Caller(
        org=record.org,
        project=record.project,
        actor_kind=_KINDS[record.kind],
        actor_id=record.id,
        scopes=record.scopes,
        limits={},
        spend_cap=None,
    )
