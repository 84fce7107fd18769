"""The page of log-in by device, step by step, in a real browser: what a person sees, hears and types."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from edge.auth import redis_names as names
from edge.auth.accounts import User
from edge.auth.device import MAX_WRONG_CODES, TOKEN_LIFETIME_S
from edge.auth.session_cookie import NAME
from edge.auth.sessions import digest_of
from tests.browser.asking import begin, forget, is_pending, name_of
from tests.browser.conftest import FEW_FAILURES
from tests.browser.page import APPROVED, CODE, DECISION, DENIED, LOG_IN, WITHIN_MS, DevicePage
from tests.integration.edge.parts import Edge
from tests.integration.edge.people import PASSWORD, make_user

NOBODY = "BBBB-BBBB"
NOBODY_WAITS = "Nobody waits under this code: it is wrong, out of date or used."


@pytest.mark.parametrize(
    ("width", "height", "scheme"), [(390, 844, "light"), (390, 844, "dark"), (1280, 900, "dark")]
)
async def test_every_step_fits_a_phone_and_a_screen_by_day_and_by_night(
    chromium: Browser,
    edge: Edge,
    owner: User,
    tmp_path_factory: pytest.TempPathFactory,
    width: int,
    height: int,
    scheme: str,
) -> None:
    code = await begin(edge, "a program whose name is as long as a name may be, " + "x" * 50)
    pictures = tmp_path_factory.mktemp(f"{width}-{scheme}")
    dark = scheme == "dark"
    async with await chromium.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    ) as context:
        context.set_default_timeout(WITHIN_MS)
        page = DevicePage(await context.new_page(), edge.url, pictures)
        await page.open()
        await page.sees(LOG_IN)
        await check_fit(page.tab, is_dark=dark)
        await page.log_in(owner.email, "not the password")
        await page.is_told("The address or the password is wrong.")
        await page.log_in(owner.email)
        await page.sees(CODE)
        await check_fit(page.tab, is_dark=dark)
        await page.enter(NOBODY)
        await page.is_told(NOBODY_WAITS)
        await page.enter(code.lower().replace("-", " "))
        await page.sees(DECISION)
        await check_fit(page.tab, is_dark=dark)
        await page.press("Approve")
        await page.sees(APPROVED)
        await check_fit(page.tab, is_dark=dark)
    assert len(list(pictures.glob("*.png"))) == 6


async def check_fit(tab: Page, *, is_dark: bool) -> None:
    """Nothing is cut at the side or smaller than fingers and eyes want, and the colours are those asked for."""
    seen = await tab.evaluate(
        """() => {
          const shown = [...document.querySelectorAll("input, select, button")].filter((each) => each.offsetParent);
          return {
            overhang: document.documentElement.scrollWidth - innerWidth,
            height: Math.min(...shown.map((each) => each.offsetHeight)),
            text: Math.min(...shown.map((each) => parseFloat(getComputedStyle(each).fontSize))),
            ground: getComputedStyle(document.body).backgroundColor,
          };
        }"""
    )
    assert seen["overhang"] <= 0
    assert seen["height"] >= 44
    assert seen["text"] >= 15
    assert (seen["ground"] == "rgb(21, 21, 23)") == is_dark


async def test_the_whole_way_is_gone_by_keyboard_alone(page: DevicePage, edge: Edge, owner: User) -> None:
    code = await begin(edge)
    await page.open(code)
    await page.sees(LOG_IN)
    keys = page.tab.keyboard
    await expect(page.tab.get_by_label("Mail address")).to_be_focused()
    await keys.type(owner.email)
    await keys.press("Tab")
    await keys.type(PASSWORD)
    await keys.press("Enter")
    await page.sees(CODE)
    await expect(page.tab.get_by_label("Code", exact=True)).to_be_focused()
    await expect(page.tab.get_by_label("Code", exact=True)).to_have_value(code)
    await keys.press("Enter")
    await page.sees(DECISION)
    await expect(
        page.tab.get_by_role("heading", name=DECISION)
    ).to_be_focused()  # and no button: Enter decides nothing
    await keys.press("Enter")
    for label in ("Organization", "Project"):
        await keys.press("Tab")
        await expect(page.tab.get_by_label(label, exact=True)).to_be_focused()
    await keys.press("Tab")
    await expect(page.tab.get_by_role("button", name="Approve")).to_be_focused()
    assert await is_pending(edge, code)
    await keys.press("Tab")
    await keys.press("Enter")
    await page.sees(DENIED)
    await expect(page.tab.get_by_role("heading", name=DENIED)).to_be_focused()
    assert not await is_pending(edge, code)


async def test_who_asks_is_shown_and_where_it_works_is_chosen(page: DevicePage, edge: Edge) -> None:
    user = await make_user(edge, ("page-a", "owner"), ("page-b", "member"), ("page-c", "owner"))
    await edge.accounts.create_project("page-b", "web")
    await edge.redis.hset(names.org("page-c"), "status", "suspended")
    code = await begin(edge, "a <b>bold</b> program")
    name = await name_of(edge, code) or ""
    created_s = int(await edge.redis.hget(name, "created_at") or 0)
    await edge.redis.hset(name, "created_at", str(created_s - 130))
    await page.come_to_the_decision(user, code)
    await expect(page.fact("It calls itself")).to_have_text("“a <b>bold</b> program”")
    await expect(page.fact("It asks from")).to_have_text("127.0.0.1")
    await expect(page.fact("It asked")).to_have_text("2 minutes ago")
    await expect(page.fact("Its code")).to_have_text(code)
    await expect(page.fact("You are")).to_have_text(user.email)
    organization = page.tab.get_by_label("Organization", exact=True)
    await expect(organization.get_by_role("option")).to_have_text(["page-a", "page-b"])
    told = f"It may there, for {TOKEN_LIFETIME_S // 86_400} days: ask models, list models, list API keys, "
    told += "make and revoke API keys, read the request log, read usage."
    await expect(page.tab.get_by_text(told, exact=True)).to_be_visible()
    await organization.select_option("page-b")
    await expect(page.tab.get_by_text("make and revoke API keys")).to_have_count(0)
    await page.tab.get_by_label("Project", exact=True).select_option("web")
    await page.press("Approve")
    await page.sees(APPROVED)
    await expect(page.tab.get_by_text(f"acts as {user.email} in page-b / web.")).to_be_visible()
    fields = ["status", "user", "org", "project"]
    assert await edge.redis.hmget(name, fields) == ["approved", user.id, "page-b", "web"]


async def test_who_is_a_member_of_nothing_can_only_deny(page: DevicePage, edge: Edge) -> None:
    user, code = await make_user(edge), await begin(edge)
    await page.come_to_the_decision(user, code)
    await expect(page.tab.get_by_text("You are a member of no organization with a project")).to_be_visible()
    await expect(page.tab.get_by_role("button", name="Approve")).to_be_disabled()
    await page.press("Deny")
    await page.sees(DENIED)


async def test_a_session_that_is_there_is_told_and_can_be_ended(page: DevicePage, edge: Edge, owner: User) -> None:
    await page.come_to_the_decision(owner, await begin(edge))
    await page.open()
    await page.sees(CODE)
    await expect(page.tab.get_by_role("banner")).to_contain_text(owner.email)
    await page.press("Log out")
    await page.sees(LOG_IN)
    await expect(page.tab.get_by_role("button", name="Log out")).to_have_count(0)
    assert await edge.redis.zcard(names.user_sessions(owner.id)) == 0
    assert NAME not in {cookie["name"] for cookie in await page.tab.context.cookies()}


async def test_log_ins_that_fail_too_often_are_told_when_to_go_on(page: DevicePage, owner: User) -> None:
    await page.open()
    for _ in range(FEW_FAILURES):
        await page.sees(LOG_IN)
        await page.log_in(owner.email, "wrong")
        await page.is_told("The address or the password is wrong.")
        await expect(page.tab.get_by_label("Password")).to_be_focused()
        await expect(page.tab.get_by_label("Password")).to_have_value("")
    await page.log_in(owner.email)
    await page.is_told("Too many failed log-ins; retry in ")


async def test_codes_that_are_wrong_too_often_are_told_when_to_go_on(
    page: DevicePage, edge: Edge, owner: User
) -> None:
    await page.open()
    await page.log_in(owner.email)
    for _ in range(MAX_WRONG_CODES):
        await page.enter("not a code")
        await page.is_told(NOBODY_WAITS)
        await expect(page.tab.get_by_label("Code", exact=True)).to_be_focused()
    await page.enter(await begin(edge))
    await page.is_told("Too many wrong codes; retry in ")


async def test_a_code_that_ends_while_it_is_looked_at_is_asked_for_again(
    page: DevicePage, edge: Edge, owner: User
) -> None:
    code = await begin(edge)
    await page.come_to_the_decision(owner, code)
    await forget(edge, code)
    await page.press("Approve")
    await page.sees(CODE)
    await page.is_told(NOBODY_WAITS)
    await page.enter(await begin(edge))
    await page.sees(DECISION)


async def test_a_session_that_ends_on_the_way_is_asked_for_again(page: DevicePage, edge: Edge, owner: User) -> None:
    code = await begin(edge)
    await page.come_to_the_decision(owner, code)
    (cookie,) = [each for each in await page.tab.context.cookies() if each["name"] == NAME]
    await edge.sessions.close_session(digest_of(cookie["value"]), owner.id)
    edge.identity.session_cache.invalidate(digest_of(cookie["value"]))
    await page.press("Approve")
    await page.sees(LOG_IN)
    await page.is_told("The session is not valid: log in again.")
    assert await is_pending(edge, code)
    await page.log_in(owner.email)
    await page.sees(CODE)


async def test_what_another_tab_changed_is_looked_at_anew(page: DevicePage, edge: Edge, owner: User) -> None:
    code = await begin(edge)
    await page.come_to_the_decision(owner, code)
    other = await make_user(edge, ("page-other", "owner"))
    second = DevicePage(await page.tab.context.new_page(), edge.url)
    await second.open()
    await second.press("Log out")
    await second.log_in(other.email)
    await second.sees(CODE)
    await page.press("Approve")
    await page.is_told("Your session has changed. Look again who you are.", with_id=False)
    assert await is_pending(edge, code)
    await page.press("Go on")
    await expect(page.fact("You are")).to_have_text(other.email)


async def test_a_server_that_does_not_answer_is_said_so(page: DevicePage, edge: Edge, owner: User) -> None:
    await page.tab.route("**/v1/auth/session", lambda route: route.abort())
    await page.open()
    await page.sees("Something went wrong")
    await page.is_told("The server does not answer.", with_id=False)
    await page.tab.unroute("**/v1/auth/session")
    await page.tab.route("**/v1/auth/login", lambda route: route.fulfill(status=502, body="<html>Bad Gateway</html>"))
    await page.press("Try again")
    await page.sees(LOG_IN)
    await page.log_in(owner.email)
    await page.is_told("The server answered with status 502.", with_id=False)
    assert await edge.redis.zcard(names.user_sessions(owner.id)) == 0


async def test_the_page_asks_its_own_server_alone_and_breaks_no_rule_of_its_own(
    page: DevicePage, edge: Edge, owner: User
) -> None:
    asked: list[str] = []
    faults: list[str] = []
    page.tab.on("request", lambda request: asked.append(request.url))
    page.tab.on("pageerror", lambda error: faults.append(str(error)))
    page.tab.on("console", lambda said: faults.append(said.text) if "401" not in said.text else None)
    await page.come_to_the_decision(owner, await begin(edge))
    await page.press("Approve")
    await page.sees(APPROVED)
    assert faults == []
    assert [url for url in asked if not url.startswith(f"{edge.url}/")] == []
    assert len(asked) >= 7
