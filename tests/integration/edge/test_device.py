"""Log-in by device: a program waits, a person decides, and one token comes of it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import aiohttp
import pytest

from edge.auth.accounts import User
from edge.auth.credentials import mint_credential
from edge.auth.device import LIFETIME_S, MAX_WRONG_CODES, TOKEN_LIFETIME_S, digest_of, parse_user_code
from edge.auth.key_record import KeyRecord
from edge.auth.scopes import ROLES
from shared.ids import new_record_id
from tests.integration.edge.parts import MESSAGES, WELL_WITHIN_S, Edge, FakeNode, running_edge, until
from tests.integration.edge.people import (
    CHANGE,
    KEYS,
    LOGOUT,
    PASSWORD,
    SESSION,
    Answer,
    Page,
    make_user,
    written_under,
)

CODE, TOKEN, SHOW, DECIDE = (f"/v1/auth/device{end}" for end in ("/code", "/token", "", "/decision"))
GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class Program:
    """What has no browser."""

    def __init__(self, edge: Edge, client: aiohttp.ClientSession) -> None:
        self.edge = edge
        self.page = Page(client, headers={})
        self.codes: dict[str, Any] = {}

    async def begin(self, **fields: str) -> dict[str, Any]:
        answer = await self.page.post(CODE, fields or {"client": "b3os-cli"})
        assert answer.status == 200, answer.raw
        assert answer.headers["Cache-Control"] == "no-store"
        self.codes = answer.body
        return self.codes

    async def ask(self, *, after_a_while: bool = True) -> Answer:
        """Ask for the token, as if the interval had passed."""
        if after_a_while:
            await self.edge.redis.hdel(f"b3os:device:{digest_of(self.codes['device_code'])}", "polled_at")
        return await self.page.post(TOKEN, {"grant_type": GRANT, "device_code": self.codes["device_code"]})

    async def is_told(self, code: str, *, after_a_while: bool = True) -> bool:
        answer = await self.ask(after_a_while=after_a_while)
        assert answer.problem() == (400, code, None)
        assert answer.body["error"] == code
        is_waiting = code in ("authorization_pending", "slow_down")
        assert ("x-should-retry" in answer.headers) == (not is_waiting)
        return True


@pytest.fixture
def program(edge: Edge, client: aiohttp.ClientSession) -> Program:
    return Program(edge, client)


async def decide(page: Page, program: Program, decision: str = "approve", **fields: str) -> Answer:
    return await page.post(DECIDE, {"user_code": program.codes["user_code"], "decision": decision, **fields})


async def test_a_program_is_logged_in_as_the_person_who_says_yes(
    program: Program, edge: Edge, page: Page, node: FakeNode
) -> None:
    user = await make_user(edge, ("acme", "owner"), ("other", "member"))
    await page.log_in(user)
    codes = await program.begin()
    assert codes == {
        "device_code": codes["device_code"],
        "user_code": codes["user_code"],
        "verification_uri": f"{edge.url}/device",
        "verification_uri_complete": f"{edge.url}/device?user_code={codes['user_code']}",
        "expires_in": LIFETIME_S,
        "interval": 5,
    }
    assert re.fullmatch(r"[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}", codes["user_code"])
    assert len(codes["device_code"]) == 43
    assert await program.is_told("authorization_pending")
    shown = await page.get(f"{SHOW}?user_code={codes['user_code'].lower().replace('-', '%20')}")
    assert (shown.body["user_code"], shown.body["client"]) == (codes["user_code"], "b3os-cli")
    assert shown.body["address"] == "127.0.0.1"
    assert await program.is_told("authorization_pending")
    assert (await decide(page, program, organization="other", project="main")).status == 204
    given = await program.ask(after_a_while=False)
    token = given.body.pop("access_token")
    scopes = ROLES["member"]
    assert given.body == {"token_type": "Bearer", "expires_in": TOKEN_LIFETIME_S, "scope": " ".join(scopes)}
    assert re.fullmatch(r"b3os_pat_[0-9a-z]{32}_[0-9a-z]{7}", token)
    assert await program.is_told("expired_token")

    keyed = Page(program.page.client, headers={"Authorization": f"Bearer {token}"})
    assert (await keyed.post(MESSAGES, {})).status == 200
    caller = node.tokens[-1].caller
    assert (caller.org, caller.project, caller.actor_kind, caller.scopes) == ("other", "main", "token", scopes)
    told = (await keyed.get(SESSION)).body
    assert told["user"] == {"id": user.id, "email": user.email, "name": "Ada"}
    assert (told["organization"], told["project"], told["scopes"]) == ("other", "main", list(scopes))
    assert (told["key"]["kind"], told["key"]["name"]) == ("token", "b3os-cli")
    assert "csrf_token" not in told
    listed = (await keyed.get(KEYS)).body["data"]
    assert told["key"]["id"] in {each["id"] for each in listed}

    out = await keyed.post(LOGOUT)
    assert (out.status, out.set_cookie) == (204, None)
    assert (await keyed.get(SESSION)).status == 401


async def test_neither_code_nor_token_is_in_redis(program: Program, edge: Edge, page: Page, owner: User) -> None:
    del owner
    await program.begin()
    await decide(page, program)
    held = await written_under(edge, "b3os:device:*")
    token = (await program.ask()).body["access_token"]
    held += await written_under(edge, "b3os:device:*") + await written_under(edge, "b3os:key:*")
    assert held
    assert not [text for text in held if program.codes["device_code"] in text or token in text]


@pytest.mark.usefixtures("remembered_for_ever")
async def test_a_token_ends_with_the_person(program: Program, edge: Edge, page: Page) -> None:
    user = await make_user(edge, ("acme", "owner"))
    await page.log_in(user)
    await program.begin()
    await decide(page, program)
    keyed = Page(page.client, headers={"x-api-key": (await program.ask()).body["access_token"]})
    assert (await keyed.get(SESSION)).status == 200
    await edge.accounts.set_user_status(user.id, "disabled")

    async def is_over() -> bool:
        return (await keyed.get(SESSION)).status == 401

    await until(is_over, WELL_WITHIN_S)


async def test_keys_of_a_token_are_the_person_s_and_outlive_a_logout(
    program: Program, page: Page, owner: User
) -> None:
    await program.begin()
    await decide(page, program)
    keyed = Page(page.client, headers={"x-api-key": (await program.ask()).body["access_token"]})
    made = (await keyed.post(KEYS, {"name": "n", "project": "main"})).body
    assert made["created_by"] == owner.id
    assert (await keyed.post(LOGOUT)).status == 204
    assert (await Page(page.client, headers={"x-api-key": made["key"]}).post(MESSAGES, {})).status == 200


async def test_who_asks_too_often_has_to_wait_longer(program: Program, edge: Edge) -> None:
    await program.begin()
    name = f"b3os:device:{digest_of(program.codes['device_code'])}"
    assert await program.is_told("authorization_pending")
    assert await program.is_told("slow_down", after_a_while=False)
    assert await edge.redis.hget(name, "interval") == "10"
    polled_ms = int(await edge.redis.hget(name, "polled_at") or 0)
    await edge.redis.hset(name, "polled_at", str(polled_ms - 5_500))  # more than before, and seconds less than now
    assert await program.is_told("slow_down", after_a_while=False)
    polled_ms = int(await edge.redis.hget(name, "polled_at") or 0)
    await edge.redis.hset(name, "polled_at", str(polled_ms - 15_000))
    assert await program.is_told("authorization_pending", after_a_while=False)


async def test_a_no_is_told_once(program: Program, page: Page, owner: User) -> None:
    del owner
    await program.begin()
    assert (await decide(page, program, "deny")).status == 204
    assert (await decide(page, program)).problem() == (404, "not_found", "user_code")
    assert await program.is_told("access_denied")
    assert await program.is_told("expired_token")


async def test_many_who_ask_at_once_get_one_token(program: Program, page: Page, owner: User) -> None:
    del owner
    await program.begin()
    await decide(page, program)
    answers = await asyncio.gather(*(program.ask(after_a_while=False) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19


async def test_codes_end_after_ten_minutes(program: Program, edge: Edge, page: Page, owner: User) -> None:
    del owner
    codes = await program.begin()
    names = (f"b3os:device:{digest_of(codes['device_code'])}", f"b3os:device-user-code:{codes['user_code']}")
    for name in names:
        assert 0 < await edge.redis.ttl(name) <= LIFETIME_S
    await decide(page, program)
    assert 0 < await edge.redis.ttl(names[0]) <= LIFETIME_S  # a yes lives no longer
    await edge.redis.delete(*names)
    assert await program.is_told("expired_token")


async def test_who_left_the_organization_meanwhile_gets_nothing(program: Program, edge: Edge, page: Page) -> None:
    user = await make_user(edge, ("acme", "owner"))
    await page.log_in(user)
    await program.begin()
    await decide(page, program)
    await edge.accounts.remove_member("acme", user.id)
    assert await program.is_told("access_denied")


@pytest.mark.parametrize("change", ["no token", "another site", "a key", "nothing"])
async def test_only_a_page_with_a_session_decides(
    program: Program, page: Page, owner: User, key: str, change: str
) -> None:
    del owner
    await program.begin()
    if change == "no token":
        page.csrf = ""
    elif change == "another site":
        page.headers = {"Sec-Fetch-Site": "cross-site"}
    elif change == "a key":
        page = Page(page.client, headers={"x-api-key": key})
    else:
        page = Page(page.client)
    assert (await decide(page, program)).status == (401 if change == "nothing" else 403)
    assert await program.is_told("authorization_pending")
    if change in ("a key", "nothing"):
        assert (await page.get(f"{SHOW}?user_code={program.codes['user_code']}")).status in (401, 403)


async def test_a_form_of_another_site_decides_nothing(program: Program, page: Page, owner: User) -> None:
    del owner
    await program.begin()
    headers = {"Cookie": f"__Host-b3os_session={page.cookie}", "x-b3os-csrf": page.csrf}
    form = {"user_code": program.codes["user_code"], "decision": "approve"}
    async with page.client.post(DECIDE, data=form, headers=headers) as answer:
        assert answer.status == 415
    assert await program.is_told("authorization_pending")


async def test_a_token_is_for_places_where_the_person_is(program: Program, edge: Edge, page: Page) -> None:
    user = await make_user(edge, ("acme", "owner"), ("other", "member"))
    await make_user(edge, ("foreign", "owner"))
    await page.log_in(user)
    await program.begin()
    assert (await decide(page, program, organization="foreign")).problem() == (403, "forbidden", "organization")
    assert (await decide(page, program, project="missing")).problem() == (403, "forbidden", "project")
    assert (await decide(page, program, organization="other")).status == 204


async def test_guesses_are_limited_for_a_person_whatever_session_he_has(
    program: Program, edge: Edge, page: Page
) -> None:
    user = await make_user(edge, ("acme", "owner"))
    await page.log_in(user)
    await program.begin()
    for _ in range(MAX_WRONG_CODES + 2):  # right ones count for nothing
        assert (await page.get(f"{SHOW}?user_code={program.codes['user_code']}")).status == 200
    wrong = ("", "x", "AEIO-UAEI", "BBBB-BBBB", "B" * 30)
    for at in range(MAX_WRONG_CODES):
        assert (await page.get(f"{SHOW}?user_code={wrong[at % 5]}")).problem() == (404, "not_found", "user_code")
    await page.log_in(user)
    answer = await page.get(f"{SHOW}?user_code={program.codes['user_code']}")
    assert answer.problem() == (429, "rate_limited", None)
    assert (await decide(page, program)).status == 429


@pytest.mark.parametrize("headers", [{"x_b3os_csrf": ""}, {"Sec_Fetch_Site": "cross-site"}, {"x_b3os_csrf": "wrong"}])
async def test_who_can_not_be_our_page_looks_up_no_code_and_uses_up_no_try(
    program: Program, edge: Edge, page: Page, headers: dict[str, str]
) -> None:
    """Any site can have a browser go to an address of ours, with the cookie."""
    await page.log_in(await make_user(edge, ("acme", "owner")))
    await program.begin()
    for _ in range(MAX_WRONG_CODES + 1):
        assert (await page.get(f"{SHOW}?user_code=BBBB-BBBB", **headers)).problem() == (403, "forbidden", None)
    assert (await page.get(f"{SHOW}?user_code={program.codes['user_code']}")).status == 200


@pytest.mark.usefixtures("remembered_for_ever")
async def test_another_password_ends_tokens_and_what_was_agreed_to_and_no_keys(
    program: Program, edge: Edge, page: Page
) -> None:
    user = await make_user(edge, ("acme", "owner"))
    await page.log_in(user)
    await program.begin()
    await decide(page, program)
    token = (await program.ask()).body["access_token"]
    keyed = Page(page.client, headers={"x-api-key": token})
    key = (await keyed.post(KEYS, {"name": "n", "project": "main"})).body
    assert (await keyed.get(SESSION)).status == 200
    await program.begin()
    await decide(page, program)
    new = "a new and longer one"
    page.take(await page.post(CHANGE, {"current_password": PASSWORD, "new_password": new}))

    async def is_over() -> bool:
        return (await keyed.get(SESSION)).status == 401

    await until(is_over, WELL_WITHIN_S)
    assert await program.is_told("access_denied")
    assert (await Page(page.client, headers={"x-api-key": key["key"]}).post(MESSAGES, {})).status == 200
    statuses = {each["id"]: each["status"] for each in (await page.get(f"{KEYS}?limit=200")).body["data"]}
    assert statuses[key["id"]] == "active"
    mine = [record for record in await edge.store.list_keys("acme") if record.made_by == user.id]
    assert sorted((record.kind, record.status) for record in mine) == [("pat", "revoked"), ("sk", "active")]
    await program.begin()
    await decide(page, program)
    assert (await program.ask()).status == 200


async def test_a_token_that_was_made_under_an_older_password_opens_nothing(edge: Edge, page: Page) -> None:
    """The change may come between the look at the version and the making."""
    user = await make_user(edge, ("acme", "owner"))
    for version, status in ((1, 200), (0, 401), (2, 401), (None, 401)):
        credential = mint_credential("pat")
        record = KeyRecord(
            *(new_record_id("tok"), "pat", "acme", "main", "n", ROLES["owner"], "active", credential.hint, 1, None),
            made_by=user.id,
            password_version=version,
        )
        await edge.store.create_key(credential.digest, record)
        keyed = Page(page.client, headers={"x-api-key": credential.token})
        assert (version, (await keyed.get(SESSION)).status) == (version, status)


async def test_the_oldest_of_a_user_s_tokens_goes_and_no_key_for_it(
    program: Program, edge: Edge, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.auth.key_store.MAX_TOKENS", 2)
    monkeypatch.setattr("edge.auth.key_store.MAX_KEYS", 1)
    user = await make_user(edge, ("narrow", "owner"))
    await page.log_in(user)
    key = (await page.post(KEYS, {"name": "n", "project": "main"})).body
    tokens = []
    for _ in range(3):
        await program.begin()
        await decide(page, program)
        tokens.append((await program.ask()).body["access_token"])
        for digest in await edge.redis.zrange(f"b3os:user:{user.id}:tokens", 0, -1):
            await edge.redis.zincrby(f"b3os:user:{user.id}:tokens", -10, str(digest))  # as if time passed
    pages = [Page(page.client, headers={"x-api-key": each}) for each in (*tokens, key["key"])]
    assert [(await each.get(f"{KEYS}?limit=1")).status for each in pages[:3]] == [401, 200, 200]
    assert (await pages[3].post(MESSAGES, {})).status == 200
    listed = (await page.get(KEYS)).body["data"]
    assert sorted(each["kind"] for each in listed) == ["key", "token", "token"]
    assert (await pages[1].post(LOGOUT)).status == 204
    assert (await page.post(KEYS, {"name": "n", "project": "main"})).problem() == (400, "invalid_request", None)


async def test_a_body_is_not_waited_for_where_the_limit_stands(edge_redis_url: str) -> None:
    async with (
        running_edge(edge_redis_url, {}, device_logins_per_address=1) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        assert (await Page(client).post(CODE, {})).status == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        head = f"POST {CODE} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 50000\r\n\r\n"
        writer.write(head.encode())  # and no byte of the body
        try:
            assert b" 429 " in await reader.readline()
        finally:
            writer.close()
            await writer.wait_closed()


async def test_an_address_begins_only_so_many(edge_redis_url: str) -> None:
    async with (
        running_edge(edge_redis_url, {}, device_logins_per_address=2) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        page = Page(client)
        assert [(await page.post(CODE, {})).status for _ in range(3)] == [200, 200, 429]


async def test_forms_are_taken_as_the_rfc_has_them(
    edge: Edge, client: aiohttp.ClientSession, program: Program
) -> None:
    del edge
    async with client.post(CODE, data={"client_id": "other-cli"}) as answer:
        program.codes = await answer.json()
        assert answer.status == 200
    form = {"grant_type": GRANT, "device_code": program.codes["device_code"], "client_id": "other-cli"}
    async with client.post(TOKEN, data=form) as answer:
        assert (answer.status, (await answer.json())["error"]) == (400, "authorization_pending")
    for raw in (b"grant_type=a&grant_type=b", b"\xff=%ff", b"a=" + b"&b=1" * 30):
        async with client.post(
            TOKEN, data=raw, headers={"Content-Type": "application/x-www-form-urlencoded"}
        ) as answer:
            assert (answer.status, (await answer.json())["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CODE, {"client": "a\u202eb"}, "client"),
        (CODE, {"scope": "all"}, "scope"),
        (TOKEN, {"grant_type": "password", "device_code": "x"}, "grant_type"),
        (TOKEN, {"grant_type": GRANT}, "device_code"),
        (TOKEN, {"grant_type": GRANT, "device_code": "x" * 201}, "device_code"),
        (DECIDE, {"user_code": "BBBB-BBBB", "decision": "maybe"}, "decision"),
    ],
)
async def test_a_wrong_field_is_named(page: Page, owner: User, path: str, body: object, param: str) -> None:
    del owner
    assert (await page.post(path, body)).problem() == (400, "invalid_request", param)


async def test_under_the_api_s_name_a_program_is_sent_to_the_dashboard_s(edge_redis_url: str) -> None:
    async with (
        running_edge(edge_redis_url, {}, dashboard_hosts="dash.example.com,localhost:7700") as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        page = Page(client)
        for host, uri in (
            ("api.example.com", "https://dash.example.com/device"),
            ("localhost:7700", "http://localhost:7700/device"),
        ):
            assert (await page.post(CODE, {}, Host=host)).body["verification_uri"] == uri


async def test_an_api_key_does_not_log_out_and_learns_what_it_is(page: Page, owner: User, edge: Edge) -> None:
    made = (await page.post(KEYS, {"name": "n", "project": "main"})).body
    keyed = Page(page.client, headers={"x-api-key": made["key"]})
    assert (await keyed.post(LOGOUT)).problem() == (403, "forbidden", None)
    told = (await keyed.get(SESSION)).body
    assert (told["user"], told["key"]["id"], told["scopes"]) == (None, made["id"], made["scopes"])
    assert told["key"]["created_by"] == owner.id
    assert owner.email not in str(told)
    del edge


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("WDJB-MJHT", "WDJB-MJHT"),
        ("wdjbmjht", "WDJB-MJHT"),
        (" wd jb - mjht ", "WDJB-MJHT"),
        ("WDJB-MJH", None),
        ("WDJB-MJHTT", None),
        ("WDJB-MJHA", None),
        ("", None),
        ("\u1e9e" * 8, None),
    ],
)
def test_a_code_is_read_as_people_type_it(typed: str, code: str | None) -> None:
    assert parse_user_code(typed) == code
