"""The routes of API keys: make, list, revoke.

Decides what a caller may give away: no key grants more than its maker has, nor lives or spends beyond him. Must not
know how keys are written or stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from aiohttp import web
from pydantic import AwareDatetime, Field, StringConstraints

from edge.api.body import PLAIN_TEXT, Body, invalid, read_json
from edge.api.caller import identify, org_of
from edge.api.query import parse_cursor, parse_limit, read_query
from edge.api.render import private_json
from edge.auth.authenticate import KINDS, Authenticator, Identity, KeyIdentity, SessionIdentity
from edge.auth.cache import RecordCache
from edge.auth.credentials import Credential, mint_credential
from edge.auth.key_record import KeyRecord, SpendCap
from edge.auth.key_store import CURSOR, MAX_GENERATIONS, RedisKeyStore
from edge.auth.scopes import INFERENCE_SCOPES, order_scopes
from edge.auth.store import NoRoom, NotYours, UnknownRecord, answering
from edge.times import iso
from shared.errors import FORBIDDEN, INVALID_REQUEST, NO_SUCH_RECORD, ApiError
from shared.ids import new_record_id

MAX_LABEL = 100
MAX_NANO_USD = 9_000_000_000_000_000
"""Nine million dollars: integers up to here are exact in Redis's Lua, whose numbers are doubles."""
MAX_LIFETIME_S = 10 * 366 * 86_400
USUAL_LIMIT = 50
MOST_OF_A_PAGE = 200
_NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"
Scope = Literal["infer:run", "models:read", "keys:read", "keys:write", "requests:read", "usage:read"]


class SpendCapBody(Body):
    """What the key may spend in each period."""

    nano_usd: int = Field(ge=1, le=MAX_NANO_USD)
    period: Literal["day", "month", "total"]


class KeyBody(Body):
    """The key that is wanted."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=MAX_LABEL, pattern=PLAIN_TEXT)]
    project: Annotated[str, StringConstraints(pattern=_NAME)]
    scopes: tuple[Scope, ...] | None = Field(None, min_length=1, max_length=20)
    spend_cap: SpendCapBody | None = None
    expires_at: AwareDatetime | None = None


class KeyRoutes:
    """Handlers of `/v1/keys`."""

    def __init__(
        self,
        authenticator: Authenticator,
        store: RedisKeyStore,
        cache: RecordCache[KeyRecord],
        wall_clock: Callable[[], float],
    ) -> None:
        """`cache` holds keys; `wall_clock` gives Unix seconds."""
        self._authenticator = authenticator
        self._store = store
        self._cache = cache
        self._wall_clock = wall_clock

    async def create_key(self, request: web.Request) -> web.Response:
        """`POST /v1/keys`: the one time that a key's secret is told."""
        identity = await identify(self._authenticator, request, "keys:write")
        maker = _maker_of(identity)
        body = await read_json(request, KeyBody)
        scopes = _choose_scopes(body.scopes, identity.record.granted)
        credential = mint_credential()
        record = self._build_record(body, credential, org_of(identity), scopes, maker)
        async with answering():
            try:
                await self._store.create_key(credential.digest, record, is_bounded=True)
            except UnknownRecord:
                raise invalid("project", "the organization has no such project") from None
            except NoRoom as full:
                raise ApiError(INVALID_REQUEST, str(full)) from None
        self._cache.expect(credential.digest)
        return private_json({**render_key(record, self._wall_clock()), "key": credential.token}, status=201)

    async def list_keys(self, request: web.Request) -> web.Response:
        """`GET /v1/keys`: a page of those of the caller's organization, newest first, without secrets."""
        identity = await identify(self._authenticator, request, "keys:read")
        query = read_query(request, ("limit", "cursor"))
        limit, cursor = parse_limit(query, USUAL_LIMIT, MOST_OF_A_PAGE), parse_cursor(query, CURSOR)
        async with answering():
            page = await self._store.fetch_page(org_of(identity), cursor=cursor, limit=limit)
        now_s = self._wall_clock()
        return private_json(
            {"data": [render_key(record, now_s) for record in page.records], "next_cursor": page.cursor}
        )

    async def revoke_key(self, request: web.Request) -> web.Response:
        """`DELETE /v1/keys/{id}`: refused by every edge within a second; doing it twice is no fault.

        People end any key of their organization, with a session or a CLI token. A key ends itself and what it made.
        """
        identity = await identify(self._authenticator, request, "keys:write")
        key_id = request.match_info["id"]
        is_person = isinstance(identity, SessionIdentity) or identity.record.kind == "pat"
        try:
            record = await self._revoke(key_id, org_of(identity), None if is_person else identity.digest)
        except UnknownRecord:
            raise ApiError(NO_SUCH_RECORD, "your organization has no key of this id", param="id") from None
        except NotYours:
            words = "a key revokes itself and the keys that were made with it, and no others"
            raise ApiError(FORBIDDEN, words, param="id") from None
        return private_json(render_key(record, self._wall_clock()))

    async def end_key(self, record: KeyRecord) -> None:
        """Revoke the key that asks for it."""
        await self._revoke(record.id, record.org)

    async def _revoke(self, key_id: str, org: str, by: str | None = None) -> KeyRecord:
        async with answering():
            revoked = await self._store.revoke_key(key_id, org, by)
        for digest in revoked.digests:
            self._cache.invalidate(digest)  # without waiting for our own message
        return revoked.record

    def _build_record(
        self, body: KeyBody, credential: Credential, org: str, scopes: tuple[str, ...], maker: _Maker
    ) -> KeyRecord:
        now_s = int(self._wall_clock())
        return KeyRecord(
            id=new_record_id("key"),
            kind=credential.kind,
            org=org,
            project=body.project,
            name=body.name,
            scopes=scopes,
            status="active",
            hint=credential.hint,
            created_at_s=now_s,
            expires_at_s=None if body.expires_at is None else _check_expiry(body.expires_at, now_s),
            spend_cap=None if body.spend_cap is None else SpendCap(body.spend_cap.nano_usd, body.spend_cap.period),
            made_by=maker.user,
            parent_digest=None if maker.key is None else maker.key.digest,
            parent=None if maker.key is None else maker.key.record,
        )


def render_key(record: KeyRecord, now_s: float) -> dict[str, object]:
    """What is told of a key, of its secret the first four characters."""
    cap = record.spend_cap
    return {
        "id": record.id,
        "kind": KINDS[record.kind],
        "name": record.name,
        "organization": record.org,
        "project": record.project,
        "scopes": list(record.scopes),
        "status": "expired" if record.status == "active" and record.is_over(now_s) else record.status,
        "hint": record.hint,
        "spend_cap": None if cap is None else {"nano_usd": cap.nano_usd, "period": cap.period},
        "created_at": iso(record.created_at_s),
        "created_by": record.made_by,
        "expires_at": None if record.expires_at_s is None else iso(record.expires_at_s),
    }


@dataclass(frozen=True, slots=True)
class _Maker:
    """On whom a new key depends: the user of a session, or the key that asked."""

    user: str | None = None
    key: KeyIdentity | None = None


def _maker_of(identity: Identity) -> _Maker:
    if isinstance(identity, SessionIdentity):
        return _Maker(user=identity.record.user)
    if identity.record.kind == "pat":
        return _Maker(user=identity.record.made_by)  # it acts for its user; a log-out ends the token, not his keys
    if identity.record.spend_cap is not None:
        raise ApiError(FORBIDDEN, "a key with a spend cap makes no keys: theirs would not count against it")
    if identity.record.generation >= MAX_GENERATIONS:
        raise ApiError(FORBIDDEN, f"a key that is {MAX_GENERATIONS - 1} keys away from a person makes no keys")
    return _Maker(key=identity)


def _choose_scopes(wanted: tuple[Scope, ...] | None, granted: tuple[str, ...]) -> tuple[str, ...]:
    if wanted is None:
        wanted_or_usual: tuple[str, ...] = tuple(scope for scope in INFERENCE_SCOPES if scope in granted)
        if not wanted_or_usual:
            raise ApiError(FORBIDDEN, "you have none of the scopes that a key usually gets", param="scopes")
        return wanted_or_usual
    for at, scope in enumerate(wanted):
        if scope not in granted:
            raise ApiError(FORBIDDEN, f"you lack the scope {scope}, so no key of yours has it", param=f"scopes.{at}")
    return order_scopes(wanted)


def _check_expiry(expires_at: datetime, now_s: int) -> int:
    at_s = int(expires_at.timestamp())
    if not now_s < at_s <= now_s + MAX_LIFETIME_S:
        raise invalid("expires_at", "Input should be in the future, and within ten years")
    return at_s
