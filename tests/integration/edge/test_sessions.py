"""What a session opens, where, and until when."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from edge.auth.accounts import User
from edge.auth.credentials import mint_credential
from edge.auth.session_cookie import NAME
from edge.auth.sessions import IDLE_S, LIFETIME_S, Place, RedisSessions, Replaced, digest_of
from shared.node_token import Caller
from tests.integration.edge.parts import MESSAGES, MODELS, WELL_WITHIN_S, Edge, FakeNode, running_edge, until
from tests.integration.edge.people import KEYS, LOGOUT, SESSION, Page, make_user


async def test_the_chat_of_the_dashboard_asks_a_node_with_its_session(
    page: Page, owner: User, node: FakeNode, edge: Edge
) -> None:
    await edge.accounts.set_limits("acme", {"requests_per_minute": 60, "tokens_per_minute": 9000})
    await asyncio.sleep(0.1)
    assert (await page.post(MESSAGES, {})).status == 200
    assert (await page.get(MODELS, x_b3os_csrf="")).status == 200
    assert "cookie" not in {name.lower() for name in node.requests[0].headers}
    caller = node.tokens[0].caller
    record = await edge.sessions.fetch_session(digest_of(page.cookie))
    assert record is not None
    assert caller == Caller(
        org="acme",
        project="main",
        actor_kind="session",
        actor_id=owner.id,  # whatever session he has: a new one is no new account
        scopes=record.granted,
        limits={"requests_per_minute": 60, "tokens_per_minute": 9000},
        spend_cap=None,
    )
    await edge.accounts.set_limits("acme", {"requests_per_minute": None, "tokens_per_minute": None})


@pytest.mark.usefixtures("remembered_for_ever")
async def test_after_logout_the_value_is_dead_on_every_edge(
    page: Page, owner: User, node: FakeNode, edge_redis_url: str
) -> None:
    del owner
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    port = page.client._base_url.port if page.client._base_url else 0
    async with (
        running_edge(edge_redis_url, nodes, dashboard_hosts=f"127.0.0.1:{port}") as second,
        aiohttp.ClientSession(second.url) as client,
    ):
        other = Page(client, page.cookie, page.csrf, {**page.headers, "Host": f"127.0.0.1:{port}"})
        assert (await other.get(SESSION)).status == 200
        answer = await page.post(LOGOUT)
        assert (answer.status, answer.raw) == (204, b"")
        assert answer.set_cookie == f"{NAME}=; Max-Age=0; Path=/; Secure; HttpOnly; SameSite=Lax"
        assert (await page.get(SESSION)).problem() == (401, "unauthorized", None)  # at once, where it was asked for

        async def is_dead() -> bool:
            return (await other.get(SESSION)).status == 401

        await until(is_dead, WELL_WITHIN_S)
        for path in (MESSAGES, LOGOUT, KEYS):
            assert (await other.post(path, {})).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"x_b3os_csrf": ""},
        {"x_b3os_csrf": "wrong"},
        {"x_b3os_csrf": "\u00fc" * 22},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "", "Origin": "https://evil.example"},
        {"Sec_Fetch_Site": "", "Origin": "null"},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", MESSAGES), ("POST", KEYS), ("DELETE", f"{KEYS}/key_x")])
async def test_another_site_can_not_use_a_session(
    page: Page, owner: User, node: FakeNode, method: str, path: str, headers: dict[str, str]
) -> None:
    del owner
    answer = await page.send(method, path, {}, **headers)
    assert answer.status == 403
    assert answer.body.get("error", answer.body)["code"] == "forbidden"
    assert node.requests == []
    assert (await page.get(SESSION)).status == 200  # and it lives on


async def test_the_token_of_another_session_is_no_token(edge: Edge, page: Page, owner: User) -> None:
    other = Page(page.client)
    await other.log_in(owner)
    assert (await page.post(KEYS, {}, x_b3os_csrf=other.csrf)).problem() == (403, "forbidden", None)
    del edge


async def test_origin_will_do_where_sec_fetch_site_is_missing(edge: Edge, page: Page, owner: User) -> None:
    del owner
    assert (await page.post(MESSAGES, {}, Sec_Fetch_Site="", Origin=edge.url)).status == 200
    assert (await page.post(MESSAGES, {}, Sec_Fetch_Site="")).status == 200


async def test_a_key_counts_before_a_cookie_and_needs_no_token(
    page: Page, owner: User, key: str, node: FakeNode
) -> None:
    del owner
    bad = mint_credential().token
    for headers in ({"Authorization": f"Bearer {key}"}, {"x_api_key": key}):
        answer = await page.post(MESSAGES, {}, x_b3os_csrf="", Sec_Fetch_Site="cross-site", **headers)
        assert answer.status == 200
    assert {token.caller.actor_kind for token in node.tokens} == {"key"}
    for wrong in ("", "Bearer", f"Bearer {bad}", "Basic eDp4"):
        answer = await page.post(MESSAGES, {}, Authorization=wrong or " ")
        assert answer.status == 401


async def test_under_the_names_of_the_api_a_cookie_is_nothing_and_a_key_is_enough(
    node: FakeNode, edge_redis_url: str
) -> None:
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    hosts: dict[str, Any] = {"dashboard_hosts": "Dash.example.com, 127.0.0.1:7700", "api_hosts": ["api.example.com"]}
    async with (
        running_edge(edge_redis_url, nodes, **hosts) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        user = await make_user(edge, ("acme", "owner"))
        page = Page(client, headers={"Sec-Fetch-Site": "", "Host": "dash.example.com"})
        await page.log_in(user)
        key = (await page.post(KEYS, {"name": "n", "project": "main"})).body["key"]
        for host in ("dash.example.com", "DASH.example.com", "dash.example.com:443"):
            assert (host, (await page.get(SESSION, Host=host)).status) == (host, 200)
        strangers = (
            "api.example.com",
            "dash.example.com:80",
            "dash.example.com:7700",
            "dash.example.com.",
            "x.dash.example.com",
            f"127.0.0.1:{edge.port}",
        )
        for host in strangers:
            assert (host, (await page.get(SESSION, Host=host)).status) == (host, 401)
            assert (host, (await page.post(MESSAGES, {}, Host=host)).status) == (host, 401)
            keyed = await page.post(MESSAGES, {}, Host=host, Cookie="", Authorization=f"Bearer {key}")
            assert (host, keyed.status) == (host, 200)
        for origin, status in (("https://dash.example.com", 200), ("http://dash.example.com", 403)):
            assert (await page.post(MESSAGES, {}, Origin=origin)).status == status


async def test_two_cookies_are_none(page: Page, owner: User) -> None:
    del owner
    both = f"{NAME}={page.cookie}; {NAME}={'A' * 43}"
    assert (await page.get(SESSION, Cookie=both)).status == 401
    assert (await page.get(SESSION, Cookie=f"other=1; {NAME}={page.cookie}; {NAME}={page.cookie}")).status == 200
    for value in ("", "x", "A" * 43, "A" * 5000, f'"{page.cookie}"'):
        assert (await page.get(SESSION, Cookie=f"{NAME}={value}")).status == 401


async def test_idle_sessions_end_and_busy_ones_do_not_outlive_their_lifetime(edge: Edge, owner: User) -> None:
    now_s = [1_000_000.0]
    sessions = RedisSessions(edge.redis, lambda: now_s[0])
    value = await sessions.open_session(owner, Place("acme", "main"))
    assert value is not None
    name = f"b3os:session:{digest_of(value)}"
    assert IDLE_S - 60 <= await edge.redis.ttl(name) <= IDLE_S
    await edge.redis.expire(name, 100)
    record = await sessions.fetch_session(digest_of(value))
    assert record is not None
    assert IDLE_S - 60 <= await edge.redis.ttl(name) <= IDLE_S  # a session in use
    assert record.ends_at_s == 1_000_000 + LIFETIME_S
    now_s[0] = record.ends_at_s - 600
    await sessions.fetch_session(digest_of(value))
    assert 540 <= await edge.redis.ttl(name) <= 600
    assert record.is_usable(record.ends_at_s - 1)
    assert not record.is_usable(record.ends_at_s)


async def test_a_read_brings_no_closed_session_back(edge: Edge, owner: User) -> None:
    value = await edge.sessions.open_session(owner, Place("acme", "main"))
    digest = digest_of(str(value))
    await edge.sessions.close_session(digest, owner.id)
    assert await edge.sessions.fetch_session(digest) is None
    assert not await edge.redis.exists(f"b3os:session:{digest}")


async def test_a_session_that_was_closed_meanwhile_goes_on_nowhere(edge: Edge, owner: User) -> None:
    """A switch that loses the race against a logout must not end with a live session."""
    value = await edge.sessions.open_session(owner, Place("acme", "main"))
    digest = digest_of(str(value))
    await edge.sessions.close_session(digest, owner.id)
    assert await edge.sessions.open_session(owner, Place("acme", "main"), Replaced(digest, must_live=True)) is None


async def test_a_login_that_checked_the_old_password_opens_nothing(edge: Edge) -> None:
    user = await make_user(edge, ("acme", "owner"))
    assert await edge.accounts.set_password(user.id, user.password, user.password_version)
    assert await edge.sessions.open_session(user, Place("acme", "main")) is None


@pytest.mark.usefixtures("remembered_for_ever")
@pytest.mark.parametrize("change", ["disabled", "another password", "no member", "suspended", "another role"])
async def test_what_becomes_of_a_user_counts_for_running_sessions_though_they_are_remembered(
    edge: Edge, page: Page, change: str
) -> None:
    org = f"of-{change.replace(' ', '-')}"
    user = await make_user(edge, (org, "owner"))
    await page.log_in(user)
    assert (await page.get(KEYS)).status == 200
    match change:
        case "disabled":
            await edge.accounts.set_user_status(user.id, "disabled")
        case "another password":
            await edge.accounts.set_password(user.id, user.password)
        case "no member":
            await edge.accounts.remove_member(org, user.id)
        case "suspended":
            await edge.store.set_organization_status(org, "suspended")
        case _:
            await edge.accounts.set_role(org, user.id, "member")
    is_over = change in ("disabled", "another password")

    async def is_seen() -> bool:
        answer = await page.post(KEYS, {"name": "n", "project": "main"})
        return answer.status == (401 if is_over else 403)

    await until(is_seen, WELL_WITHIN_S)
    answer = await page.get(SESSION)
    if is_over:
        assert answer.problem() == (401, "unauthorized", None)
    else:
        assert "keys:write" not in answer.body["scopes"]
        assert answer.body["organization"] == (org if change == "another role" else None)
