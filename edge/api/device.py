"""The routes of log-in by device (RFC 8628): a program begins and waits, a person with a session decides.

Decides what each of them is told. Must not know how codes are stored. Refusals of the program's routes are problems
that have RFC 6749's `error` too; bodies may be JSON, as everywhere here, or a form, as the RFC has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, assert_never

from aiohttp import web
from pydantic import Field, StringConstraints

from edge.api.body import PLAIN_TEXT, Body, invalid, read_form_or_json, read_json
from edge.api.render import private_json
from edge.auth.accounts import RedisAccounts
from edge.auth.authenticate import Authenticator, SessionIdentity
from edge.auth.cache import RecordCache
from edge.auth.credentials import mint_credential
from edge.auth.csrf import refuse_other_sites, refuse_without_token
from edge.auth.device import (
    INTERVAL_S,
    LIFETIME_S,
    TOKEN_LIFETIME_S,
    Approved,
    Asking,
    Denied,
    Expired,
    Pending,
    RedisDevices,
    TooFast,
    parse_user_code,
)
from edge.auth.failures import AddressLimit, FailureLimit, address_of
from edge.auth.hosts import Hosts, origins_of
from edge.auth.key_record import KeyRecord
from edge.auth.key_store import RedisKeyStore
from edge.auth.scopes import ROLES
from edge.auth.store import UnknownRecord, answering
from edge.pages.served import DEVICE_PAGE
from edge.times import iso
from shared.errors import (
    ACCESS_DENIED,
    AUTHORIZATION_PENDING,
    EXPIRED_TOKEN,
    FORBIDDEN,
    NO_SUCH_RECORD,
    RATE_LIMITED,
    SLOW_DOWN,
    ApiError,
    problem_body,
)
from shared.ids import new_record_id
from shared.web import CONTEXT, json_response

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
Label = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=PLAIN_TEXT)]


class CodeBody(Body):
    """What a program says of itself; a person reads it."""

    client: Label | None = None
    client_id: Label | None = None


class TokenBody(Body):
    """RFC 8628 §3.4."""

    grant_type: str = Field(min_length=1, max_length=100)
    device_code: str = Field(min_length=1, max_length=200)
    client_id: Label | None = None


class DecisionBody(Body):
    """What a person decides."""

    user_code: str = Field(min_length=1, max_length=40)
    decision: Literal["approve", "deny"]
    organization: str | None = Field(None, min_length=1, max_length=63)
    project: str | None = Field(None, min_length=1, max_length=63)


class DeviceRoutes:
    """Handlers under `/v1/auth/device`."""

    def __init__(
        self,
        authenticator: Authenticator,
        devices: RedisDevices,
        accounts: RedisAccounts,
        store: RedisKeyStore,
        cache: RecordCache[KeyRecord],
        hosts: Hosts,
        begun: AddressLimit,
        wrong_codes: FailureLimit,
        wall_clock: Callable[[], float],
        *,
        trusted_proxies: int,
    ) -> None:
        """`cache` holds keys; `begun` counts the log-ins of an address, `wrong_codes` what a user typed in vain."""
        self._authenticator = authenticator
        self._devices = devices
        self._accounts = accounts
        self._store = store
        self._cache = cache
        self._hosts = hosts
        self._begun = begun
        self._wrong_codes = wrong_codes
        self._wall_clock = wall_clock
        self._trusted_proxies = trusted_proxies

    async def begin(self, request: web.Request) -> web.Response:
        """`POST /v1/auth/device/code`: codes for a program that has nothing yet."""
        address = address_of(request.remote, request.headers, self._trusted_proxies)
        if (wait_s := self._begun.begin(address)) is not None:
            raise ApiError(RATE_LIMITED, f"too many log-ins were begun; retry in {wait_s} s", retry_after_s=wait_s)
        body = await read_form_or_json(request, CodeBody)
        asking = Asking(body.client or body.client_id or "a program", address, int(self._wall_clock()))
        async with answering():
            codes = await self._devices.begin(asking)
        page = self._page_of(request)
        return private_json(
            {
                "device_code": codes.device_code,
                "user_code": codes.user_code,
                "verification_uri": page,
                "verification_uri_complete": f"{page}?user_code={codes.user_code}",
                "expires_in": LIFETIME_S,
                "interval": INTERVAL_S,
            }
        )

    async def fetch_token(self, request: web.Request) -> web.Response:
        """`POST /v1/auth/device/token`: the token, once, or why there is none."""
        body = await read_form_or_json(request, TokenBody)
        if body.grant_type != GRANT:
            raise invalid("grant_type", f"Input should be '{GRANT}'")
        async with answering():
            outcome = await self._devices.poll(body.device_code)
        match outcome:
            case Approved():
                return await self._mint(request, outcome)
            case Pending():
                return _refuse(request, ApiError(AUTHORIZATION_PENDING, "nobody has confirmed the code yet"))
            case TooFast():
                return _refuse(request, ApiError(SLOW_DOWN, "wait 5 seconds longer before each question"))
            case Denied():
                return _refuse(request, ApiError(ACCESS_DENIED, "the log-in was denied"))
            case Expired():
                return _refuse(request, ApiError(EXPIRED_TOKEN, "the code is out of date, was used, or is unknown"))
            case _:
                assert_never(outcome)

    async def show(self, request: web.Request) -> web.Response:
        """`GET /v1/auth/device?user_code=…`: who asks, for the person who is to decide.

        It counts wrong codes, so it needs the token like a change does: other sites can have a browser go here.
        """
        identity = await self._require_session(request)
        refuse_other_sites(request.headers, identity.host)
        refuse_without_token(request.headers, identity.record.csrf)
        code, asking = await self._find(identity, request.query.get("user_code", ""))
        return private_json(
            {
                "user_code": code,
                "client": asking.client,
                "address": asking.address,
                "created_at": iso(asking.created_at_s),
                "expires_at": iso(asking.created_at_s + LIFETIME_S),
            }
        )

    async def decide(self, request: web.Request) -> web.Response:
        """`POST /v1/auth/device/decision`: a person lets the program in, with what he may do there, or not."""
        identity = await self._require_session(request)
        body = await read_json(request, DecisionBody)
        code, _ = await self._find(identity, body.user_code)
        if body.decision == "deny":
            async with answering():
                is_decided = await self._devices.deny(code)
        else:
            org, project = await self._choose_place(identity, body)
            async with answering():
                person = identity.record
                is_decided = await self._devices.approve(code, person.user, person.password_version, org, project)
        if not is_decided:
            raise _no_such_code()
        return web.Response(status=204, headers={"Cache-Control": "no-store"})

    async def _mint(self, request: web.Request, approved: Approved) -> web.Response:
        credential, now_s = mint_credential("pat"), int(self._wall_clock())
        async with answering():
            user = await self._accounts.fetch_user(approved.user)
            memberships = await self._accounts.list_memberships(approved.user)
            scopes = [ROLES.get(each.role, ()) for each in memberships if each.org == approved.org]
            is_meant = user is not None and user.password_version == approved.password_version
            if not is_meant or not scopes:  # he has another password, or left the organization
                return _refuse(request, ApiError(ACCESS_DENIED, "the log-in was denied"))
            record = KeyRecord(
                id=new_record_id("tok"),
                kind=credential.kind,
                org=approved.org,
                project=approved.project,
                name=approved.client,
                scopes=scopes[0],
                status="active",
                hint=credential.hint,
                created_at_s=now_s,
                expires_at_s=now_s + TOKEN_LIFETIME_S,
                made_by=approved.user,
                password_version=approved.password_version,
            )
            try:
                await self._store.create_key(credential.digest, record)
            except UnknownRecord:
                return _refuse(request, ApiError(ACCESS_DENIED, "the log-in was denied"))
        self._cache.expect(credential.digest)
        return private_json(
            {
                "access_token": credential.token,
                "token_type": "Bearer",
                "expires_in": TOKEN_LIFETIME_S,
                "scope": " ".join(record.scopes),
            }
        )

    async def _find(self, identity: SessionIdentity, typed: str) -> tuple[str, Asking]:
        """Who waits under a code that was typed. Wrong ones are counted: they could be guesses."""
        user = identity.record.user
        if (wait_s := self._wrong_codes.begin(user)) is not None:
            raise ApiError(RATE_LIMITED, f"too many wrong codes; retry in {wait_s} s", retry_after_s=wait_s)
        code = parse_user_code(typed)
        async with answering():
            asking = None if code is None else await self._devices.find(code)
        if code is None or asking is None:
            raise _no_such_code()
        self._wrong_codes.forgive(user)
        return code, asking

    async def _choose_place(self, identity: SessionIdentity, body: DecisionBody) -> tuple[str, str]:
        """Where the token will work: as the person says, else where his session does."""
        org = body.organization or identity.record.org
        async with answering():
            memberships = await self._accounts.list_memberships(identity.record.user)
        projects = [each.projects for each in memberships if each.org == org and each.org_is_active]
        if org is None or not projects:
            raise ApiError(FORBIDDEN, "you are no member of this organization", param="organization")
        usual = identity.record.project if org == identity.record.org else next(iter(projects[0]), None)
        project = body.project or usual
        if project is None or project not in projects[0]:
            raise ApiError(FORBIDDEN, "the organization has no such project", param="project")
        return org, project

    async def _require_session(self, request: web.Request) -> SessionIdentity:
        context = request[CONTEXT]
        with context.phases.measure("edge_auth"):
            identity = await self._authenticator.identify(request)
        context.facts.update(actor=identity.record.id)
        if not isinstance(identity, SessionIdentity):
            raise ApiError(FORBIDDEN, "this route is for sessions of the dashboard, not for API keys")
        return identity

    def _page_of(self, request: web.Request) -> str:
        """Where a person types the code: under the name that the program used, or the first that people use."""
        host = self._hosts.dashboard_of(request.headers) or self._hosts.first
        return origins_of(host)[0 if request.secure else -1] + DEVICE_PAGE


def _refuse(request: web.Request, error: ApiError) -> web.Response:
    body = problem_body(error, request[CONTEXT].request_id) | {"error": error.condition.code}
    return json_response(
        body,
        status=error.condition.status,
        headers={**error.response_headers(), "Cache-Control": "no-store"},
        content_type="application/problem+json",
    )


def _no_such_code() -> ApiError:
    return ApiError(
        NO_SUCH_RECORD, "nobody waits under this code: it is wrong, out of date or used", param="user_code"
    )
