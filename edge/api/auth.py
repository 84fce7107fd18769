"""The routes of people: log in and out, the session, its organization, the password.

Decides who may ask, and what is told of a session. Must not know how passwords are checked nor where sessions lie.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from pydantic import Field

from edge.api.body import Body, invalid, read_json, require_json
from edge.api.keys import KeyRoutes, render_key
from edge.api.render import private_json
from edge.auth.accounts import Membership, RedisAccounts
from edge.auth.authenticate import Authenticator, Identity, KeyIdentity, SessionIdentity
from edge.auth.cache import RecordCache
from edge.auth.csrf import refuse_other_sites
from edge.auth.failures import address_of
from edge.auth.hosts import Hosts
from edge.auth.key_record import KeyRecord
from edge.auth.login import Login, Opened
from edge.auth.passwords import MAX_CHARACTERS, MIN_CHARACTERS
from edge.auth.scopes import ROLES
from edge.auth.session_cookie import build_cookie, build_removal, extract_values
from edge.auth.sessions import Place, RedisSessions, SessionRecord, digest_of
from edge.auth.store import answering
from edge.times import iso
from shared.errors import FORBIDDEN, ApiError
from shared.web import CONTEXT


class LoginBody(Body):
    """What a person shows."""

    email: str = Field(min_length=1, max_length=254)
    password: str = Field(min_length=1, max_length=MAX_CHARACTERS)
    organization: str | None = Field(None, min_length=1, max_length=63)
    project: str | None = Field(None, min_length=1, max_length=63)


class PlaceBody(Body):
    """Where to work."""

    organization: str = Field(min_length=1, max_length=63)
    project: str | None = Field(None, min_length=1, max_length=63)


class PasswordBody(Body):
    """The password that is, and the one that shall be."""

    current_password: str = Field(min_length=1, max_length=MAX_CHARACTERS)
    new_password: str = Field(min_length=MIN_CHARACTERS, max_length=MAX_CHARACTERS)


class AuthRoutes:
    """Handlers under `/v1/auth`."""

    def __init__(
        self,
        authenticator: Authenticator,
        login: Login,
        accounts: RedisAccounts,
        sessions: RedisSessions,
        cache: RecordCache[SessionRecord],
        keys: KeyRoutes,
        hosts: Hosts,
        wall_clock: Callable[[], float],
        *,
        trusted_proxies: int,
    ) -> None:
        """`cache` holds sessions; `wall_clock` gives Unix seconds; `trusted_proxies` as in `address_of`."""
        self._authenticator = authenticator
        self._login = login
        self._accounts = accounts
        self._sessions = sessions
        self._cache = cache
        self._keys = keys
        self._hosts = hosts
        self._wall_clock = wall_clock
        self._trusted_proxies = trusted_proxies

    async def log_in(self, request: web.Request) -> web.Response:
        """`POST /v1/auth/login`: a new session, whatever cookie came along (so that nobody can plant one)."""
        self._require_own_page(request)
        require_json(request)
        body = await read_json(request, LoginBody)
        values = extract_values(request.headers)
        address = address_of(request.remote, request.headers, self._trusted_proxies)
        with request[CONTEXT].phases.measure("edge_auth"):
            opened = await self._login.log_in(
                body.email,
                body.password,
                Place(body.organization, body.project),
                address,
                replaced=digest_of(values.pop()) if len(values) == 1 else None,
            )
        return await self._answer_opened(opened)

    async def log_out(self, request: web.Request) -> web.Response:
        """`POST /v1/auth/logout`: the session, or the token of `b3os login`, is over on every edge."""
        identity = await self._identify(request)
        response = web.Response(status=204, headers={"Cache-Control": "no-store"})
        if isinstance(identity, KeyIdentity):
            if identity.record.kind != "pat":
                raise ApiError(FORBIDDEN, "an API key has not logged in: revoke it with DELETE /v1/keys/{id}")
            await self._keys.end_key(identity.record)
            return response
        async with answering():
            await self._sessions.close_session(identity.digest, identity.record.user)
        self._cache.invalidate(identity.digest)  # without waiting for our own message
        response.headers.add("Set-Cookie", build_removal())
        return response

    async def show_session(self, request: web.Request) -> web.Response:
        """`GET /v1/auth/session`: who is logged in, where he may work, the token for changes; or what a key is."""
        identity = await self._identify(request)
        if isinstance(identity, KeyIdentity):
            return await self._answer_key(identity.record)
        return await self._answer(identity.record)

    async def switch_organization(self, request: web.Request) -> web.Response:
        """`POST /v1/auth/organization`: the same person elsewhere, under a new session."""
        identity = await self._require_session(request)
        body = await read_json(request, PlaceBody)
        opened = await self._login.switch(identity, Place(body.organization, body.project))
        self._cache.invalidate(identity.digest)
        return await self._answer_opened(opened)

    async def change_password(self, request: web.Request) -> web.Response:
        """`POST /v1/auth/password`: a new password and a new session; every other one and each CLI token is over."""
        identity = await self._require_session(request)
        body = await read_json(request, PasswordBody)
        if body.new_password == body.current_password:
            raise invalid("new_password", "Input should differ from current_password")
        opened = await self._login.change_password(identity, body.current_password, body.new_password)
        self._cache.invalidate(identity.digest)
        return await self._answer_opened(opened)

    async def _identify(self, request: web.Request) -> Identity:
        context = request[CONTEXT]
        with context.phases.measure("edge_auth"):
            identity = await self._authenticator.identify(request)
        context.facts.update(actor=identity.record.id)
        return identity

    async def _require_session(self, request: web.Request) -> SessionIdentity:
        identity = await self._identify(request)
        if not isinstance(identity, SessionIdentity):
            raise ApiError(FORBIDDEN, "this route is for sessions of the dashboard, not for API keys")
        return identity

    def _require_own_page(self, request: web.Request) -> None:
        host = self._hosts.dashboard_of(request.headers)
        if host is None:
            raise ApiError(FORBIDDEN, "log in under a host name of the dashboard: sessions exist there alone")
        refuse_other_sites(request.headers, host)

    async def _answer_opened(self, opened: Opened) -> web.Response:
        self._cache.expect(digest_of(opened.value))
        response = await self._answer(opened.record)
        lives_s = max(1, opened.record.ends_at_s - int(self._wall_clock()))
        response.headers.add("Set-Cookie", build_cookie(opened.value, lives_s))
        return response

    async def _answer(self, record: SessionRecord) -> web.Response:
        async with answering():
            memberships = await self._accounts.list_memberships(record.user)
        return private_json(
            {
                "user": {"id": record.user, "email": record.email, "name": record.name},
                "organization": record.org if record.granted else None,
                "project": record.project if record.granted else None,
                "scopes": list(record.granted),
                "organizations": [_membership(each) for each in memberships],
                "csrf_token": record.csrf,
                "expires_at": iso(record.ends_at_s),
            }
        )

    async def _answer_key(self, record: KeyRecord) -> web.Response:
        user = None
        if record.kind == "pat" and record.made_by is not None:  # an API key is for programs, and tells of nobody
            async with answering():
                user = await self._accounts.fetch_user(record.made_by)
        return private_json(
            {
                "user": None if user is None else {"id": user.id, "email": user.email, "name": user.name},
                "organization": record.org,
                "project": record.project,
                "scopes": list(record.granted),
                "key": render_key(record, self._wall_clock()),
            }
        )


def _membership(membership: Membership) -> dict[str, object]:
    return {
        "id": membership.org,
        "role": membership.role,
        "status": "active" if membership.org_is_active else "suspended",
        "scopes": list(ROLES.get(membership.role, ())) if membership.org_is_active else [],
        "projects": list(membership.projects),
    }
