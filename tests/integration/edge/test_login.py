"""Who gets a session, and what the others learn."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import aiohttp
import pytest

from edge.auth.accounts import RedisAccounts, User
from edge.auth.passwords import Passwords, is_password
from edge.auth.session_cookie import NAME
from edge.auth.sessions import MAX_SESSIONS, Place, digest_of
from shared.errors import NODE_UNAVAILABLE, ApiError
from tests.integration.edge.parts import Edge, FakeNode, running_edge, running_redis
from tests.integration.edge.people import (
    CHANGE,
    KEYS,
    LOGIN,
    LOGOUT,
    PASSWORD,
    SESSION,
    SWITCH,
    Page,
    make_user,
    written_under,
)
from tests.redis_server import free_port, url_of

WRONG = "the address or the password is wrong"


async def test_a_login_tells_who_is_there_and_sets_a_host_cookie(edge: Edge, page: Page) -> None:
    user = await make_user(edge, ("acme", "member"), ("other", "owner"))
    answer = await page.log_in(user)
    assert answer.set_cookie is not None
    assert re.fullmatch(
        rf"{NAME}=[\w-]{{43}}; Max-Age=\d+; Path=/; Secure; HttpOnly; SameSite=Lax", answer.set_cookie
    )
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.body["user"] == {"id": user.id, "email": user.email, "name": "Ada"}
    assert (answer.body["organization"], answer.body["project"]) == ("acme", "main")
    assert "keys:write" not in answer.body["scopes"]
    assert [(each["id"], each["role"]) for each in answer.body["organizations"]] == [
        ("acme", "member"),
        ("other", "owner"),
    ]
    assert (await page.get(SESSION)).body == answer.body


async def test_the_value_is_nowhere_in_redis(edge: Edge, owner: User, page: Page) -> None:
    del owner
    held = await written_under(edge, "b3os:session:*")
    assert held
    assert not [text for text in held if page.cookie in text]


async def test_unknown_wrong_and_disabled_share_one_text_and_one_cost(
    edge: Edge, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes: list[str | None] = []

    def check(password: str, hashed: str | None) -> bool:
        hashes.append(hashed)
        return is_password(password, hashed)

    monkeypatch.setattr("edge.auth.passwords.is_password", check)
    known = await make_user(edge, ("acme", "member"))
    disabled = await make_user(edge, ("acme", "member"), status="disabled")
    for email, password, hashed in (
        ("nobody@example.com", PASSWORD, None),
        ("nobody", PASSWORD, None),
        (known.email, "x" * 20, known.password),
        (disabled.email, PASSWORD, disabled.password),
    ):
        answer = await page.post(LOGIN, {"email": email, "password": password})
        assert answer.problem() == (401, "unauthorized", None)
        assert answer.body["detail"] == WRONG
        assert answer.set_cookie is None
        assert hashes == [hashed]  # what the time goes into; tests/unit/edge/test_passwords.py says what None costs
        hashes.clear()


async def test_an_address_is_taken_in_any_case(edge: Edge, page: Page) -> None:
    user = await make_user(edge, ("acme", "member"))
    assert (await page.post(LOGIN, {"email": f" {user.email.upper()}", "password": PASSWORD})).status == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"password": "x"}, "email"),
        ({"email": "a@b", "password": None}, "password"),
        ({"email": 3, "password": "x"}, "email"),
        ({"email": "a@b", "password": "x" * 1025}, "password"),
        ({"email": "a@b", "password": "x", "remember": True}, "remember"),
        ({"email": "a@b", "password": "x", "organization": ["a"]}, "organization"),
    ],
)
async def test_a_wrong_field_of_a_login_is_named(page: Page, body: object, param: str) -> None:
    answer = await page.post(LOGIN, body)
    assert answer.problem() == (400, "invalid_request", param)
    assert answer.body["detail"].startswith(f"{param}: ")


@pytest.mark.parametrize("depth", [33, 260, 1000, 10_000])
@pytest.mark.parametrize(("opening", "closing"), [(b'{"email":', b"}"), (b"[", b"]")])
async def test_a_body_of_many_levels_is_refused_in_order(
    client: aiohttp.ClientSession, depth: int, opening: bytes, closing: bytes
) -> None:
    inner = opening * depth + b"1" + closing * depth
    raw = b'{"password":' + inner + b"}" if len(inner) < 65_000 else inner[:60_000]
    for path in (LOGIN, "/v1/auth/device/code"):
        async with client.post(path, data=raw, headers={"Content-Type": "application/json"}) as answer:
            assert (answer.status, (await answer.json())["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"email":NaN}', b'{"email":"\\ud800"}'])
async def test_what_is_no_json_object_is_refused(client: aiohttp.ClientSession, raw: bytes) -> None:
    async with client.post(LOGIN, data=raw, headers={"Content-Type": "application/json"}) as answer:
        assert (answer.status, (await answer.json())["code"]) == (400, "invalid_request")


async def test_a_large_body_is_refused(client: aiohttp.ClientSession) -> None:
    async with client.post(LOGIN, data=b" " * 70_000, headers={"Content-Type": "application/json"}) as answer:
        assert (answer.status, (await answer.json())["code"]) == (413, "payload_too_large")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"]
)
async def test_a_form_can_not_log_anybody_in(edge: Edge, client: aiohttp.ClientSession, kind: str) -> None:
    user = await make_user(edge)
    body = f'{{"email":"{user.email}","password":"{PASSWORD}"}}'
    async with client.post(LOGIN, data=body, headers={"Content-Type": kind}) as answer:
        assert (answer.status, "Set-Cookie" in answer.headers) == (415, False)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"Sec_Fetch_Site": "", "Origin": "https://evil.example"},
        {"Sec_Fetch_Site": "", "Origin": "null"},
        {"Sec_Fetch_Site": "", "Origin": "http://127.0.0.1"},
    ],
)
async def test_another_site_can_not_log_anybody_in(edge: Edge, page: Page, headers: dict[str, str]) -> None:
    user = await make_user(edge)
    answer = await page.post(LOGIN, {"email": user.email, "password": PASSWORD}, **headers)
    assert answer.problem() == (403, "forbidden", None)
    assert answer.set_cookie is None


async def test_origin_alone_will_do_and_no_browser_needs_neither(edge: Edge, page: Page) -> None:
    user = await make_user(edge)
    body = {"email": user.email, "password": PASSWORD}
    assert (await page.post(LOGIN, body, Sec_Fetch_Site="", Origin=edge.url)).status == 200
    assert (await page.post(LOGIN, body, Sec_Fetch_Site="")).status == 200


@pytest.mark.parametrize("host", ["api.example.com", "127.0.0.1", "127.0.0.1:1", "evil.example:7700"])
async def test_there_is_no_login_under_other_names(edge: Edge, page: Page, host: str) -> None:
    user = await make_user(edge)
    answer = await page.post(LOGIN, {"email": user.email, "password": PASSWORD}, Host=host)
    assert answer.problem() == (403, "forbidden", None)


async def test_a_session_can_not_be_planted(edge: Edge, page: Page) -> None:
    """Session fixation: neither a made-up value nor an attacker's own session becomes the victim's."""
    attacker, victim = await make_user(edge, ("evil", "owner")), await make_user(edge, ("acme", "owner"))
    planted = Page(page.client)
    await planted.log_in(attacker)
    for value in (planted.cookie, "A" * 43, "x"):
        page.cookie = value
        await page.log_in(victim)
        assert page.cookie != value
        made_up = await page.get(SESSION, Cookie=f"{NAME}={value}")
        assert made_up.status == 401 or made_up.body["user"]["id"] == attacker.id
        assert (await page.get(SESSION)).body["user"]["id"] == victim.id
    assert (await planted.get(SESSION)).status == 401  # the browser that had it has a new one now


async def test_two_sessions_of_one_user_live_beside_each_other(edge: Edge, page: Page) -> None:
    user, other = await make_user(edge, ("acme", "owner")), Page(page.client)
    await page.log_in(user)
    await other.log_in(user)
    assert page.cookie != other.cookie
    assert page.csrf != other.csrf
    assert [(await each.get(SESSION)).status for each in (page, other)] == [200, 200]


async def test_the_organization_of_a_login_is_the_one_asked_for_or_the_first(edge: Edge, page: Page) -> None:
    user = await make_user(edge, ("acme", "member"), ("other", "owner"))
    await make_user(edge, ("foreign", "owner"))
    assert (await page.log_in(user)).body["organization"] == "acme"
    assert (await page.log_in(user, organization="other")).body["organization"] == "other"
    for org in ("foreign", "missing"):
        body = {"email": user.email, "password": PASSWORD, "organization": org}
        assert (await page.post(LOGIN, body)).problem() == (403, "forbidden", "organization")


async def test_somebody_without_organizations_has_a_session_and_no_scope(edge: Edge, page: Page) -> None:
    answer = await page.log_in(await make_user(edge))
    assert (answer.body["organization"], answer.body["scopes"], answer.body["organizations"]) == (None, [], [])
    assert (await page.get("/v1/keys")).problem() == (403, "forbidden", None)


async def test_failures_are_limited_for_an_account_from_wherever_they_come(edge_redis_url: str) -> None:
    settings = {"login_failures_per_account": 3, "trusted_proxies": 1}
    async with (
        running_edge(edge_redis_url, {}, **settings) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        page, user = Page(client), await make_user(edge)
        bodies = {"wrong": {"email": user.email, "password": "wrong"}, "unknown": {"email": "x@y", "password": "x"}}
        for body in bodies.values():
            for at in range(3):
                assert (await page.post(LOGIN, body, X_Forwarded_For=f"192.0.2.{at}")).status == 401
            answer = await page.post(LOGIN, body, X_Forwarded_For="192.0.2.9")
            assert answer.problem() == (429, "rate_limited", None)
            assert 1 <= int(answer.headers["Retry-After"]) <= 900
            assert "x-should-retry" not in answer.headers
        right = {"email": user.email.upper(), "password": PASSWORD}
        assert (await page.post(LOGIN, right, X_Forwarded_For="192.0.2.10")).status == 429


async def test_failures_are_limited_for_an_address_whatever_it_claims(edge_redis_url: str) -> None:
    async with (
        running_edge(edge_redis_url, {}, login_failures_per_address=4) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        page, user = Page(client), await make_user(edge)
        for _ in range(6):
            await page.log_in(user)  # successes count for nothing
        bodies = [{"email": f"{at}@example.com", "password": "wrong"} for at in range(8)]
        answers = await asyncio.gather(
            *(page.post(LOGIN, body, X_Forwarded_For=f"192.0.2.{at}") for at, body in enumerate(bodies))
        )
        assert sorted(answer.status for answer in answers) == [401] * 4 + [429] * 4


async def test_others_who_fail_keep_nobody_from_changing_his_password(edge_redis_url: str) -> None:
    settings = {"login_failures_per_account": 3, "login_failures_per_address": 5}
    now_s = [time.time()]
    async with (
        running_edge(edge_redis_url, {}, lambda: now_s[0], **settings) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        user, page, thief = await make_user(edge, ("acme", "owner")), Page(client), Page(client)
        await thief.log_in(user)  # his cookie is another's now
        now_s[0] += 60
        await page.log_in(user)
        wrong = {"email": user.email, "password": "wrong"}
        assert [(await Page(client).post(LOGIN, wrong)).status for _ in range(4)] == [401, 401, 401, 429]
        others = [{"email": f"{at}@example.com", "password": "wrong"} for at in range(3)]
        assert [(await Page(client).post(LOGIN, body)).status for body in others] == [401, 401, 429]
        new = "a new and longer one"
        guess = {"current_password": "wrong", "new_password": new}
        guesses = [(await thief.post(CHANGE, guess)).status for _ in range(4)]
        assert guesses == [401, 401, 401, 429]
        page.take(await page.post(CHANGE, {"current_password": PASSWORD, "new_password": new}))


async def test_a_disabled_user_s_right_password_counts_like_a_wrong_one(edge_redis_url: str) -> None:
    """Or whoever goes on longer than the limit lets him would know that it is right."""
    async with (
        running_edge(edge_redis_url, {}, login_failures_per_account=3) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        user = await make_user(edge, ("acme", "member"), status="disabled")
        body = {"email": user.email, "password": PASSWORD}
        assert [(await Page(client).post(LOGIN, body)).status for _ in range(4)] == [401, 401, 401, 429]


async def test_a_try_that_nobody_looked_at_counts_for_nobody(
    edge_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"login_failures_per_account": 2, "login_failures_per_address": 3}
    async with (
        running_edge(edge_redis_url, {}, **settings) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        page, user = Page(client), await make_user(edge, ("acme", "member"))
        wrong = {"email": user.email, "password": "wrong"}

        async def refuse(*_: object) -> bool:
            raise ApiError(NODE_UNAVAILABLE, "too many log-ins at once; retry in 1 second", retry_after_s=1)

        with monkeypatch.context() as full:
            full.setattr(Passwords, "verify", refuse)
            assert [(await page.post(LOGIN, wrong)).status for _ in range(5)] == [503] * 5
        statuses = [(await page.post(LOGIN, wrong)).status for _ in range(6)]
        assert statuses == [401, 401, 429, 429, 429, 429]
        # The address has one try left: those that the account's limit refused were not its.
        other = {"email": "nobody@example.com", "password": "wrong"}
        assert [(await page.post(LOGIN, other)).status for _ in range(2)] == [401, 429]


async def test_who_has_to_wait_costs_no_lookup(edge_redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        running_edge(edge_redis_url, {}, login_failures_per_address=1) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        del edge
        page, body = Page(client), {"email": "nobody@example.com", "password": "wrong"}
        assert (await page.post(LOGIN, body)).status == 401
        looked: list[str] = []

        async def find(_: RedisAccounts, email: str) -> None:
            looked.append(email)

        monkeypatch.setattr(RedisAccounts, "find_user", find)
        assert [(await page.post(LOGIN, body)).status for _ in range(2)] == [429, 429]
        assert looked == []


async def test_without_redis_a_session_is_believed_for_seconds_and_nobody_logs_in(tmp_path: Path) -> None:
    port = free_port()
    async with (
        running_redis(tmp_path, port) as redis,
        running_edge(url_of("edge", port), {}) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        page, user = Page(client), await make_user(edge, ("acme", "owner"))
        await page.log_in(user)
        await asyncio.sleep(0.1)  # the messages of what was made before
        assert (await page.get(SESSION)).status == 200
        redis.kill()
        await redis.wait()
        answers = {
            "log-in": await page.post(LOGIN, {"email": user.email, "password": PASSWORD}),
            "another session": await page.get(SESSION, Cookie=f"{NAME}={'A' * 43}"),
            "what is not cached": await page.get(KEYS),
            "an end": await page.post(LOGOUT),
        }
        for name, answer in answers.items():
            assert (name, answer.problem()) == (name, (503, "node_unavailable", None))
            assert answer.headers["Retry-After"] == "1"
            assert answer.set_cookie is None


async def test_another_organization_is_another_session_that_ends_no_later(
    edge: Edge, page: Page, node: FakeNode
) -> None:
    del node
    user = await make_user(edge, ("acme", "member"), ("other", "owner"))
    first = await page.log_in(user)
    old = page.cookie
    answer = page.take(await page.post(SWITCH, {"organization": "other"}))
    assert (answer.body["organization"], answer.body["expires_at"]) == ("other", first.body["expires_at"])
    assert "keys:write" in answer.body["scopes"]
    assert page.cookie != old
    assert answer.body["csrf_token"] != first.body["csrf_token"]
    assert (await page.get(SESSION, Cookie=f"{NAME}={old}")).status == 401
    assert (await page.post(SWITCH, {"organization": "foreign"})).problem() == (403, "forbidden", "organization")
    body = {"organization": "other", "project": "missing"}
    assert (await page.post(SWITCH, body)).problem() == (403, "forbidden", "project")


async def test_another_password_ends_every_other_session(edge: Edge, page: Page) -> None:
    user, other = await make_user(edge, ("acme", "owner")), Page(page.client)
    await page.log_in(user)
    await other.log_in(user)
    old, new = page.cookie, "a new and longer one"
    wrong = {"current_password": "wrong", "new_password": new}
    assert (await page.post(CHANGE, wrong)).problem() == (401, "unauthorized", None)
    short = {"current_password": PASSWORD, "new_password": "short"}
    assert (await page.post(CHANGE, short)).problem() == (400, "invalid_request", "new_password")
    same = {"current_password": PASSWORD, "new_password": PASSWORD}
    assert (await page.post(CHANGE, same)).problem() == (400, "invalid_request", "new_password")
    page.take(await page.post(CHANGE, {"current_password": PASSWORD, "new_password": new}))
    assert page.cookie != old
    assert (await page.get(SESSION)).status == 200
    assert (await page.get(SESSION, Cookie=f"{NAME}={old}")).status == 401
    assert (await other.get(SESSION)).status == 401
    assert (await page.post(LOGIN, {"email": user.email, "password": PASSWORD})).status == 401
    await page.log_in(user, new)


async def test_the_oldest_of_many_sessions_goes(edge: Edge, page: Page) -> None:
    user = await make_user(edge, ("acme", "owner"))
    await page.log_in(user)
    stored = await edge.accounts.fetch_user(user.id)
    assert stored is not None
    values = [await edge.sessions.open_session(stored, Place()) for _ in range(MAX_SESSIONS)]
    left = [value for value in values if await edge.sessions.fetch_session(digest_of(str(value)))]
    first = await edge.sessions.fetch_session(digest_of(page.cookie))
    assert len(left) + (first is not None) == MAX_SESSIONS
