"""Another site in the browser of somebody who is logged in: whatever it sends, nothing changes.

Each way is tried from a page of another site and from one of another port of the same host, which is the same site to
a browser: there the cookie goes along. What the edge answered is read from its own log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

from edge.auth import redis_names as names
from edge.auth.accounts import User
from edge.auth.device import MAX_WRONG_CODES
from edge.auth.session_cookie import NAME
from edge.auth.sessions import Place, digest_of, new_value
from shared.ids import new_record_id
from tests.browser.asking import begin, is_pending
from tests.browser.neighbour import NAMES, WAYS, Neighbour, running_neighbour
from tests.browser.page import CODE, LOG_IN, DevicePage
from tests.integration.edge.parts import Edge
from tests.integration.edge.people import PASSWORD, make_user

LOGIN, KEYS, LOGOUT, SWITCH, DECISION = (
    *("/v1/auth/login", "/v1/keys", "/v1/auth/logout"),
    *("/v1/auth/organization", "/v1/auth/device/decision"),
)
OWN_FETCH = """async ([path, body, token]) => {
  const headers = { "Content-Type": "application/json", "x-b3os-csrf": token };
  return (await fetch(path, { method: "POST", headers, body: JSON.stringify(body) })).status;
}"""
OWN_LOOK = """async ([path, token]) => (await fetch(path, { headers: { "x-b3os-csrf": token } })).status"""
LOOK = "/v1/auth/device"
each_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
async def neighbours() -> AsyncIterator[dict[str, Neighbour]]:
    async with running_neighbour() as running:
        yield running


@dataclass
class Victim:
    """Somebody who is logged in, and what others would change of him."""

    edge: Edge
    user: User
    org: str
    attacker: User
    code: str
    tab: Page

    @property
    def targets(self) -> dict[str, dict[str, str]]:
        """Requests that do something, if they are believed."""
        return {
            LOGIN: {"email": self.attacker.email, "password": PASSWORD},
            KEYS: {"name": "theirs", "project": "main"},
            DECISION: {"user_code": self.code, "decision": "approve"},
            SWITCH: {"organization": self.org},
            LOGOUT: {},
        }

    async def cookie(self) -> str:
        """The value of his session."""
        (found,) = [each for each in await self.tab.context.cookies(self.edge.url) if each["name"] == NAME]
        return found["value"]

    async def state(self) -> dict[str, Any]:
        """All that could have changed."""
        sessions = [await self.edge.redis.zrange(names.user_sessions(each.id), 0, -1) for each in self.people()]
        return {
            "sessions": sessions,
            "cookie": await self.cookie(),
            "keys": [record.id for record in await self.edge.store.list_keys(self.org)],
            "is pending": await is_pending(self.edge, self.code),
            "logged in": await self.tab.evaluate("fetch('/v1/auth/session').then((answer) => answer.status)"),
        }

    def people(self) -> tuple[User, User]:
        return self.user, self.attacker


@pytest.fixture
async def victim(edge: Edge, page: DevicePage) -> Victim:
    org = new_record_id("org").replace("_", "-")
    user, attacker = await make_user(edge, (org, "owner")), await make_user(edge, ("attackers", "owner"))
    await page.open()
    await page.log_in(user.email)
    await page.sees(CODE)
    return Victim(edge, user, org, attacker, await begin(edge), page.tab)


@pytest.fixture
def answered(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str, int]]]:
    """Method, path and status of what the edge has answered since it was last asked for."""
    caplog.set_level(logging.INFO, "b3os.request")

    def read() -> list[tuple[str, str, int]]:
        facts: list[dict[str, Any]] = [vars(record)["facts"] for record in caplog.records if hasattr(record, "facts")]
        caplog.clear()
        return [(each["method"], each["path"], each["status"]) for each in facts if "method" in each]

    return read


@each_name
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_that_another_site_sends_changes_anything(
    victim: Victim,
    neighbours: dict[str, Neighbour],
    answered: Callable[[], list[tuple[str, str, int]]],
    profile: BrowserContext,
    way: str,
    name: str,
) -> None:
    before, tab = await victim.state(), await profile.new_page()
    assert before["logged in"] == 200
    answered()
    seen: list[tuple[str, str, int]] = []
    for path, body in victim.targets.items():
        await neighbours[name].send(tab, way, f"{victim.edge.url}{path}", body)
        async with asyncio.timeout(60):
            while not (told := answered()):  # a beacon waits for nobody
                await asyncio.sleep(0.02)
        seen += told
    without_cookie = 401 if name == "another site" else 403
    assert seen == [
        ("OPTIONS", path, 405)
        if way == "a fetch of JSON"
        else ("POST", path, 403 if path == LOGIN else without_cookie)
        for path in victim.targets
    ]
    assert await victim.state() == before


async def test_the_same_from_our_own_page_changes_all_of_it(victim: Victim) -> None:
    """So that what is tried above is known to be worth trying."""
    before = await victim.state()
    session = await victim.tab.evaluate("fetch('/v1/auth/session').then((answer) => answer.json())")
    targets = victim.targets
    token = session["csrf_token"]
    assert await victim.tab.evaluate(OWN_FETCH, [KEYS, targets[KEYS], "not the token"]) == 403
    assert await victim.tab.evaluate(OWN_FETCH, [KEYS, targets[KEYS], token]) == 201
    assert await victim.tab.evaluate(OWN_FETCH, [DECISION, targets[DECISION], token]) == 204
    assert await victim.tab.evaluate(OWN_FETCH, [LOGIN, targets[LOGIN], ""]) == 200
    after = await victim.state()
    assert {fact for fact, value in after.items() if value != before[fact]} == {
        "sessions",
        "cookie",
        "keys",
        "is pending",
    }


@each_name
async def test_no_link_of_another_site_uses_up_the_tries_of_a_code(
    victim: Victim,
    neighbours: dict[str, Neighbour],
    answered: Callable[[], list[tuple[str, str, int]]],
    profile: BrowserContext,
    name: str,
) -> None:
    tab = await profile.new_page()
    answered()
    for _ in range(MAX_WRONG_CODES + 1):
        await neighbours[name].lead(tab, f"{victim.edge.url}{LOOK}?user_code=BBBB-BBBB")
    assert answered() == [("GET", LOOK, 403)] * (MAX_WRONG_CODES + 1)  # with the cookie: without it, it were 401
    session = await victim.tab.evaluate("fetch('/v1/auth/session').then((answer) => answer.json())")
    path = f"{LOOK}?user_code={victim.code}"
    assert await victim.tab.evaluate(OWN_LOOK, [path, session["csrf_token"]]) == 200


@each_name
async def test_the_page_is_shown_in_no_frame_of_another_site(
    victim: Victim, neighbours: dict[str, Neighbour], profile: BrowserContext, name: str
) -> None:
    tab = await profile.new_page()
    assert await neighbours[name].frame(tab, neighbours[name].url) == ["You have won"]
    assert await neighbours[name].frame(tab, f"{victim.edge.url}/device") == []


@each_name
async def test_no_script_of_another_site_reads_a_session(
    victim: Victim, neighbours: dict[str, Neighbour], profile: BrowserContext, name: str
) -> None:
    tab = await profile.new_page()
    assert "Win" in await neighbours[name].read(tab, neighbours[name].url)
    assert await neighbours[name].read(tab, f"{victim.edge.url}/v1/auth/session") == "TypeError"
    assert await tab.evaluate("document.cookie") == ""


async def test_no_script_of_ours_reads_the_cookie_and_nothing_is_kept(victim: Victim) -> None:
    (cookie,) = await victim.tab.context.cookies(victim.edge.url)
    assert (cookie["name"], cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (NAME, True, True, "Lax")
    assert await victim.tab.evaluate("document.cookie") == ""
    session = await victim.tab.evaluate("fetch('/v1/auth/session').then((answer) => answer.json())")
    held = await victim.tab.evaluate(
        """() => [
          document.documentElement.outerHTML, JSON.stringify(localStorage), JSON.stringify(sessionStorage),
          ...Object.values(globalThis).filter((each) => typeof each === "string"),
        ].join(" ")"""
    )
    assert victim.user.email in held
    assert session["csrf_token"] not in held
    assert await victim.tab.evaluate("typeof session") == "undefined"


async def test_text_is_never_set_as_html(victim: Victim) -> None:
    fault = await victim.tab.evaluate(
        "(() => { try { document.body.innerHTML = '<b>x</b>' } catch (error) { return error.name } })()"
    )
    assert fault == "TypeError"


@pytest.mark.parametrize("whose", ["nobody's", "the attacker's"])
async def test_a_cookie_that_was_planted_is_not_gone_on_with(
    edge: Edge, page: DevicePage, owner: User, neighbours: dict[str, Neighbour], whose: str
) -> None:
    planted = new_value()
    if whose == "the attacker's":
        attacker = await make_user(edge, ("attackers", "owner"))
        opened = await edge.sessions.open_session(attacker, Place("attackers", "main"))
        assert opened is not None
        planted = opened
    await page.open()
    await page.sees(LOG_IN)
    await neighbours["another port"].plant(await page.tab.context.new_page(), f"{NAME}={planted}")
    assert {each["value"] for each in await page.tab.context.cookies(edge.url)} == {planted}
    await page.log_in(owner.email)
    await page.sees(CODE)
    await expect(page.tab.get_by_role("banner")).to_contain_text(owner.email)
    (cookie,) = await page.tab.context.cookies(edge.url)
    assert cookie["value"] != planted
    assert await edge.redis.zrange(names.user_sessions(owner.id), 0, -1) == [digest_of(cookie["value"])]
    assert not await edge.redis.exists(names.session(digest_of(planted)))
