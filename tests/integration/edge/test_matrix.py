"""Every route with every kind of credential that does not open it: 401, 403 or, for what others own, 404.

A route that is not in the table fails the first test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import pytest

from edge.app import build_edge_app
from edge.auth.accounts import User
from edge.auth.credentials import mint_credential
from edge.auth.scopes import SCOPES
from edge.auth.session_cookie import NAME
from edge.pages.served import PATHS as PAGES
from tests.integration.edge.parts import Edge, make_key
from tests.integration.edge.people import Answer, Page, make_user
from tests.unit.test_openapi import NoProxy

SESSION, ANYBODY = "a session", "any credential"
ROUTES = {
    ("POST", "/v1/infer/v1/messages"): "infer:run",
    ("POST", "/v1/infer/messages"): "infer:run",
    ("POST", "/v1/infer/v1/messages/count_tokens"): "infer:run",
    ("GET", "/v1/infer/models"): "models:read",
    ("GET", "/v1/infer/models/{id}"): "models:read",
    ("GET", "/v1/infer/v1/models"): "models:read",
    ("GET", "/v1/infer/v1/models/{id}"): "models:read",
    ("POST", "/v1/keys"): "keys:write",
    ("GET", "/v1/keys"): "keys:read",
    ("DELETE", "/v1/keys/{id}"): "keys:write",
    ("GET", "/v1/requests"): "requests:read",
    ("GET", "/v1/requests/{id}"): "requests:read",
    ("GET", "/v1/usage"): "usage:read",
    ("GET", "/v1/auth/session"): ANYBODY,
    ("POST", "/v1/auth/logout"): SESSION,
    ("POST", "/v1/auth/organization"): SESSION,
    ("POST", "/v1/auth/password"): SESSION,
    ("GET", "/v1/auth/device"): SESSION,
    ("POST", "/v1/auth/device/decision"): SESSION,
}
OPEN = {
    ("HEAD", "/v1/infer"),
    ("GET", "/v1/openapi.yaml"),
    ("GET", "/v1/openapi.json"),
    *(("GET", path) for path in PAGES),  # tests/integration/edge/test_pages.py
    ("POST", "/v1/auth/login"),  # tests/integration/edge/test_login.py
    ("POST", "/v1/auth/device/code"),  # tests/integration/edge/test_device.py
    ("POST", "/v1/auth/device/token"),
}
SCOPED = {route: scope for route, scope in ROUTES.items() if scope not in (SESSION, ANYBODY)}
BOUND = {route: scope for route, scope in ROUTES.items() if scope != ANYBODY}
CHANGES = {route: scope for route, scope in ROUTES.items() if route[0] != "GET"}


@dataclass(frozen=True)
class Scene:
    """Two organizations: one in which the caller has everything, and another one."""

    edge: Edge
    page: Page
    client: aiohttp.ClientSession

    async def keyed(self, *, org: str = "acme", without: str = "", expires_at_s: int | None = None) -> Page:
        scopes = tuple(scope for scope in SCOPES if scope != without)
        _, credential = await make_key(self.edge.store, scopes=scopes, org=org, expires_at_s=expires_at_s)
        return Page(self.client, headers={"Authorization": f"Bearer {credential.token}"})

    async def logged_in(self, *places: tuple[str, str]) -> tuple[Page, User]:
        page, user = Page(self.client), await make_user(self.edge, *places)
        await page.log_in(user)
        return page, user


async def nothing(scene: Scene, scope: str) -> Page:
    del scope
    return Page(scene.client)


async def malformed_key(scene: Scene, scope: str) -> Page:
    del scope
    return Page(scene.client, headers={"x-api-key": "sk-ant-1"})


async def unknown_key(scene: Scene, scope: str) -> Page:
    del scope
    return Page(scene.client, headers={"x-api-key": mint_credential().token})


async def two_keys(scene: Scene, scope: str) -> Page:
    page = await scene.keyed()
    del scope
    return Page(scene.client, headers={**page.headers, "x-api-key": mint_credential().token})


async def expired_key(scene: Scene, scope: str) -> Page:
    del scope
    return await scene.keyed(expires_at_s=2)


async def revoked_key(scene: Scene, scope: str) -> Page:
    del scope
    record, credential = await make_key(scene.edge.store, scopes=SCOPES)
    await scene.edge.store.revoke_key(record.id)
    return Page(scene.client, headers={"x-api-key": credential.token})


async def key_of_a_suspended_organization(scene: Scene, scope: str) -> Page:
    del scope
    page = await scene.keyed(org="suspended")
    await scene.edge.store.set_organization_status("suspended", "suspended")
    return page


async def key_without_the_scope(scene: Scene, scope: str) -> Page:
    return await scene.keyed(without=scope)


async def bad_cookie(scene: Scene, scope: str) -> Page:
    del scope
    return Page(scene.client, cookie="A" * 43, csrf="x")


async def ended_session(scene: Scene, scope: str) -> Page:
    del scope
    page, _ = await scene.logged_in(("acme", "owner"))
    await scene.edge.redis.delete(*await scene.edge.redis.keys("b3os:session:*"))
    scene.edge.identity.session_cache.clear()
    return page


async def disabled_user(scene: Scene, scope: str) -> Page:
    del scope
    page, user = await scene.logged_in(("acme", "owner"))
    await scene.edge.accounts.set_user_status(user.id, "disabled")
    scene.edge.identity.session_cache.clear()
    return page


async def session_of_no_organization(scene: Scene, scope: str) -> Page:
    del scope
    page, _ = await scene.logged_in()
    return page


async def cookie_without_csrf(scene: Scene, scope: str) -> Page:
    del scope
    page, _ = await scene.logged_in(("acme", "owner"))
    page.csrf = ""
    return page


async def cookie_from_another_site(scene: Scene, scope: str) -> Page:
    del scope
    page, _ = await scene.logged_in(("acme", "owner"))
    page.headers = {"Sec-Fetch-Site": "cross-site"}
    return page


async def cookie_on_the_api_host(scene: Scene, scope: str) -> Page:
    del scope
    page, _ = await scene.logged_in(("acme", "owner"))
    page.headers = {**page.headers, "Host": "api.example.com"}
    return page


async def cookie_beside_a_bad_key(scene: Scene, scope: str) -> Page:
    page, _ = await scene.logged_in(("acme", "owner"))
    return Page(scene.client, page.cookie, page.csrf, (await unknown_key(scene, scope)).headers)


Case = tuple[Callable[[Scene, str], Awaitable[Page]], dict[tuple[str, str], str], int]
CASES: dict[str, Case] = {
    "no credential": (nothing, ROUTES, 401),
    "a malformed key": (malformed_key, ROUTES, 401),
    "an unknown key": (unknown_key, ROUTES, 401),
    "two keys": (two_keys, ROUTES, 401),
    "an expired key": (expired_key, ROUTES, 401),
    "a revoked key": (revoked_key, ROUTES, 401),
    "a suspended organization": (key_of_a_suspended_organization, ROUTES, 401),
    "the wrong scopes": (key_without_the_scope, BOUND, 403),
    "a bad cookie": (bad_cookie, ROUTES, 401),
    "an ended session": (ended_session, ROUTES, 401),
    "a disabled user": (disabled_user, ROUTES, 401),
    "a session of no organization": (session_of_no_organization, SCOPED, 403),
    "a cookie without the token": (cookie_without_csrf, CHANGES, 403),
    "a cookie from another site": (cookie_from_another_site, CHANGES, 403),
    "a cookie on the API host": (cookie_on_the_api_host, ROUTES, 401),
    "a cookie beside a bad key": (cookie_beside_a_bad_key, ROUTES, 401),
}


@pytest.fixture
def scene(edge: Edge, page: Page, client: aiohttp.ClientSession) -> Scene:
    return Scene(edge, page, client)


async def ask(page: Page, route: tuple[str, str], key_id: str = "key_x") -> Answer:
    method, path = route
    return await page.send(method, path.replace("{id}", key_id), None if method == "GET" else {})


async def test_the_table_has_every_route(edge: Edge) -> None:
    app = build_edge_app(NoProxy(), edge.identity)  # type: ignore[arg-type]
    routed = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource}
    assert routed == set(ROUTES) | OPEN


@pytest.mark.parametrize("name", CASES)
async def test_nothing_but_the_right_credential_opens_a_route(scene: Scene, name: str) -> None:
    make, routes, status = CASES[name]
    pages: dict[str, Page] = {}
    for route, scope in routes.items():
        if scope not in pages:
            pages[scope] = await make(scene, scope)
        answer = await ask(pages[scope], route)
        assert (route, answer.status) == (route, status), answer.raw
        code = "unauthorized" if status == 401 else "forbidden"
        if route[1].startswith("/v1/infer"):
            assert answer.body["error"]["code"] == code
        else:
            assert answer.problem() == (status, code, None)
        assert answer.headers["x-should-retry"] == "false"
        assert (answer.headers.get("WWW-Authenticate") == "Bearer") == (status == 401)
        assert answer.set_cookie is None


@pytest.mark.parametrize("kind", ["key", "session"])
async def test_what_another_organization_owns_is_not_there(scene: Scene, kind: str) -> None:
    foreign, _ = await make_key(scene.edge.store, org="foreign")
    page = await scene.keyed() if kind == "key" else (await scene.logged_in(("acme", "owner")))[0]
    answer = await ask(page, ("DELETE", "/v1/keys/{id}"), foreign.id)
    assert answer.problem() == (404, "not_found", "id")
    assert foreign.id not in (await ask(page, ("GET", "/v1/keys"))).raw.decode()
    stored = {record.id: record.status for record in await scene.edge.store.list_keys("foreign")}
    assert stored[foreign.id] == "active"


@pytest.mark.parametrize("kind", ["key", "session"])
async def test_the_right_credential_opens_every_route(scene: Scene, kind: str) -> None:
    """So that the refusals above are not for another reason."""
    page, user = await scene.logged_in(("acme", "owner"))
    routes = dict(SCOPED) if kind == "key" else ROUTES
    if kind == "key":
        page = await scene.keyed()
    last = ("POST", "/v1/auth/logout")
    for route in sorted(routes, key=lambda route: route == last):
        answer = await ask(page, route)
        assert (route, answer.status) not in [(route, 401), (route, 403)], answer.raw
        assert NAME not in answer.raw.decode()
    del user
