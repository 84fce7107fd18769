"""From the headers of a request to who is calling.

Decides the order of the checks, cheapest first, and what a refusal may tell: faults of form are named, while unknown,
revoked and expired credentials share one sentence. A key counts before a cookie. Must not know routes.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, assert_never

from edge.auth.cache import RecordCache
from edge.auth.credentials import Headers, carries_key, extract_credential, unauthorized
from edge.auth.csrf import SAFE_METHODS, refuse_other_sites, refuse_without_token
from edge.auth.failures import AddressLimit, address_of, is_inside
from edge.auth.hosts import Hosts
from edge.auth.key_record import KeyRecord
from edge.auth.session_cookie import extract_values
from edge.auth.sessions import SessionRecord, digest_of
from edge.auth.store import StoreUnavailable
from shared.errors import FORBIDDEN, NODE_UNAVAILABLE, RATE_LIMITED, ApiError
from shared.node_token import Caller

R = TypeVar("R")
STRANGERS_AT_ONCE = 8
"""Half of the connections for lookups: a crowd that nobody has seen keeps nobody else from being looked up."""
KINDS = {"sk": "key", "pat": "token"}
_log = logging.getLogger("b3os.edge.auth")


class Received(Protocol):
    """What is asked of a request."""

    @property
    def method(self) -> str:
        """`GET`, `POST`, …"""

    @property
    def headers(self) -> Headers:
        """All of them."""

    @property
    def remote(self) -> str | None:
        """The other end of the connection."""


@dataclass(frozen=True, slots=True)
class KeyIdentity:
    """A caller with a key; `digest` is its name in the store."""

    digest: str
    record: KeyRecord


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """A caller with a session, on the dashboard `host`; `digest` is the session's name in the store."""

    digest: str
    record: SessionRecord
    host: str


Identity = KeyIdentity | SessionIdentity


class Authenticator:
    """Knows callers by their keys and sessions.

    Attributes:
        outcomes: how often who came was `accepted`, or the code of the refusal.
    """

    def __init__(
        self,
        keys: RecordCache[KeyRecord],
        sessions: RecordCache[SessionRecord],
        hosts: Hosts,
        unknown: AddressLimit,
        wall_clock: Callable[[], float],
        *,
        trusted_proxies: int,
    ) -> None:
        """`unknown` counts what an address shows that nobody has; `wall_clock` gives Unix seconds, for expiry."""
        self._keys = keys
        self._sessions = sessions
        self._hosts = hosts
        self._unknown = unknown
        self._trusted_proxies = trusted_proxies
        self._wall_clock = wall_clock
        self._strangers = asyncio.Semaphore(STRANGERS_AT_ONCE)
        self.outcomes: Counter[str] = Counter()

    async def identify(self, request: Received, scope: str | None = None) -> Identity:
        """Who is calling, with the right to `scope` if one is given.

        Raises:
            ApiError: `UNAUTHORIZED`, `FORBIDDEN`, or `NODE_UNAVAILABLE`: not cached, and Redis is away.
        """
        try:
            identity = await self._identify(request, scope)
        except ApiError as error:
            self.outcomes[error.condition.code] += 1
            raise
        self.outcomes["accepted"] += 1
        return identity

    async def _identify(self, request: Received, scope: str | None) -> Identity:
        host = self._hosts.dashboard_of(request.headers)
        values = set() if host is None or carries_key(request.headers) else extract_values(request.headers)
        if host is None or not values:
            identity: Identity = await self._identify_key(request)
            bearer = "API key"
        else:
            identity = await self._identify_session(request, values, host)
            bearer = "session"
        if scope is not None and scope not in identity.record.granted:
            raise ApiError(FORBIDDEN, f"the {bearer} lacks the scope {scope}")
        return identity

    async def _identify_key(self, request: Received) -> KeyIdentity:
        credential = extract_credential(request.headers)
        record = await self._look_up(self._keys, credential.digest, request)
        if record is None or record.kind != credential.kind or not record.is_usable(self._wall_clock()):
            raise unauthorized("the API key is not valid")
        return KeyIdentity(credential.digest, record)

    async def _identify_session(self, request: Received, values: set[str], host: str) -> SessionIdentity:
        digest = digest_of(values.pop()) if len(values) == 1 and "" not in values else None
        record: SessionRecord | None = None
        if digest is not None:
            record = await self._look_up(self._sessions, digest, request)
        if digest is None or record is None or not record.is_usable(self._wall_clock()):
            raise unauthorized("the session is not valid: log in again")
        if request.method not in SAFE_METHODS:
            refuse_other_sites(request.headers, host)
            refuse_without_token(request.headers, record.csrf)
        return SessionIdentity(digest, record, host)

    async def _look_up(self, cache: RecordCache[R], digest: str, request: Received) -> R | None:
        """What is under a digest. Who shows much that nobody has is heard only about what was seen here before."""
        if not cache.is_strange(digest):
            return await self._ask(cache, digest)
        counted = self._count_strange(request)
        load = cache.begin(digest, self._strangers)
        load.add_done_callback(functools.partial(self._judge, counted))  # also of who has left by then
        return await self._ask(cache, digest)

    def _judge(self, counted: str | None, load: asyncio.Task[Any]) -> None:
        """Only that nobody has it counts, not that nobody could look."""
        if load.cancelled() or load.exception() is not None or load.result() is not None:
            self._forgive(counted)

    async def _ask(self, cache: RecordCache[R], digest: str) -> R | None:
        try:
            return await cache.get(digest)
        except StoreUnavailable as error:
            raise _unavailable(error) from None

    def _count_strange(self, request: Received) -> str | None:
        """The address that has to answer for it, before anybody looks: else as many as come at once would pass.

        Our own don't answer: a proxy that nobody told us of would make all callers one.
        """
        address = address_of(request.remote, request.headers, self._trusted_proxies)
        if is_inside(address):
            return None
        if (wait_s := self._unknown.begin(address)) is not None:
            words = f"too many unknown credentials came from this address; retry in {wait_s} s"
            raise ApiError(RATE_LIMITED, words, retry_after_s=wait_s)
        return address

    def _forgive(self, counted: str | None) -> None:
        if counted is not None:
            self._unknown.forgive(counted)


def caller_of(identity: Identity) -> Caller:
    """What a node is told of a caller. Scopes are those that count now, not those that were once written down.

    Raises:
        ApiError: `FORBIDDEN`; the session works in no organization.
    """
    match identity:
        case KeyIdentity(record=key):
            cap = key.spend_cap
            return Caller(
                org=key.org,
                project=key.project,
                actor_kind=KINDS[key.kind],
                actor_id=key.id,
                scopes=key.granted,
                limits=key.org_limits,
                spend_cap=None if cap is None else {"nano_usd": cap.nano_usd, "period": cap.period},
            )
        case SessionIdentity(record=session):
            if session.org is None or session.project is None:
                raise ApiError(FORBIDDEN, "the session works in no organization with a project")
            return Caller(
                org=session.org,
                project=session.project,
                actor_kind="session",
                actor_id=session.user,  # not its own id, which each change of organization renews
                scopes=session.granted,
                limits=session.org_limits,
                spend_cap=None,
            )
        case _:
            assert_never(identity)


def _unavailable(error: StoreUnavailable) -> ApiError:
    _log.error("lookup failed", extra={"facts": {"cause": str(error)}})
    return ApiError(NODE_UNAVAILABLE, "API keys and sessions can't be checked right now", retry_after_s=1)
