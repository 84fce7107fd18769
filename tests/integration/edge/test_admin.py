"""`b3os admin`: the first of everything, and a log-in with it."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from tests.integration.edge.parts import Edge
from tests.integration.edge.people import PASSWORD, SESSION, Page
from tests.integration.edge.test_process import Surroundings


@pytest.fixture
def here(tmp_path: Path, edge_redis_url: str) -> Surroundings:
    return Surroundings(tmp_path, edge_redis_url)


async def run(here: Surroundings, *arguments: str, text: str = "") -> str:
    code, out, err = await here.run("admin", *arguments, text=text)
    assert (code, err) == (0, "")
    return out


async def fail(here: Surroundings, *arguments: str, text: str = "") -> str:
    code, out, err = await here.run("admin", *arguments, text=text)
    assert (code in (1, 2), out) == (True, ""), (code, out)
    assert "Traceback" not in err
    return err


async def test_the_first_of_each_and_a_login_with_it(
    here: Surroundings, edge: Edge, client: aiohttp.ClientSession
) -> None:
    await run(here, "user", "create", "Ada@Example.com", "--name", "Ada", text=f"{PASSWORD}\n")
    await run(here, "org", "create", "lovelace")
    await run(here, "project", "create", "lovelace", "engine")
    await run(here, "member", "add", "lovelace", "ada@example.com", "--role", "owner")
    await run(here, "org", "limits", "set", "lovelace", "--requests-per-minute", "60", "--concurrent-requests", "4")
    await run(here, "org", "limits", "set", "lovelace", "--tokens-per-minute", "9", "--lift", "concurrent_requests")
    listed = json.loads(await run(here, "list", "--json"))
    assert [each for each in listed["organizations"] if each["id"] == "lovelace"] == [
        {
            "id": "lovelace",
            "status": "active",
            "projects": ["engine"],
            "members": {"ada@example.com": "owner"},
            "limits": {"requests_per_minute": 60, "tokens_per_minute": 9},
        }
    ]
    shown = await run(here, "list")
    assert PASSWORD not in shown
    assert "argon2" not in shown
    user = await edge.accounts.find_user("ada@example.com")
    assert user is not None
    page = Page(client)
    answer = await page.log_in(user)
    assert (answer.body["organization"], answer.body["project"]) == ("lovelace", "engine")

    await run(here, "user", "disable", "ada@example.com")
    assert (await page.get(SESSION)).status == 401
    await run(here, "user", "enable", "ada@example.com")
    await run(here, "user", "password", "ada@example.com", text="another long one\n")
    await page.log_in(user, "another long one")
    await run(here, "org", "suspend", "lovelace")
    assert (await page.get(SESSION)).body["organization"] is None
    await run(here, "org", "resume", "lovelace")
    await run(here, "member", "remove", "lovelace", "ada@example.com")
    assert (await page.get(SESSION)).body["organizations"] == []


async def test_an_organization_can_have_limits_from_its_first_moment_on(here: Surroundings) -> None:
    await run(here, "org", "create", "bounded", "--requests-per-minute", "60", "--concurrent-requests", "0")
    listed = json.loads(await run(here, "list", "--json"))["organizations"]
    assert [each["limits"] for each in listed if each["id"] == "bounded"] == [
        {"requests_per_minute": 60, "concurrent_requests": 0}
    ]
    assert "Invalid value" in await fail(here, "org", "create", "unbounded", "--tokens-per-minute", "-1")
    assert "unbounded" not in await run(here, "list")


async def test_what_can_not_be_done_is_said_in_one_sentence(here: Surroundings) -> None:
    await run(here, "user", "create", "twice@example.com", text=f"{PASSWORD}\n")
    await run(here, "org", "create", "twice")
    await run(here, "project", "create", "twice", "p")
    for arguments, text, words in (
        (("user", "create", "TWICE@example.com"), f"{PASSWORD}\n", "already"),
        (("user", "create", "short@example.com"), "short\n", "12 to 1024"),
        (("user", "create", "nothing@example.com"), "", "12 to 1024"),
        (("user", "create", "no-address"), f"{PASSWORD}\n", "no mail address"),
        (("user", "disable", "missing@example.com"), "", "no user missing@example.com"),
        (("org", "create", "twice"), "", "already"),
        (("org", "create", "Upper"), "", "a-z"),
        (("org", "suspend", "missing"), "", "no organization missing"),
        (("project", "create", "twice", "p"), "", "already"),
        (("project", "create", "missing", "p"), "", "no organization missing"),
        (("member", "add", "missing", "twice@example.com"), "", "no organization missing"),
        (("member", "add", "twice", "missing@example.com"), "", "no user"),
        (("member", "remove", "twice", "twice@example.com"), "", "no member"),
        (("org", "limits", "set", "missing", "--tokens-per-minute", "1"), "", "no organization missing"),
        (("org", "limits", "set", "twice"), "", "name a limit"),
    ):
        assert words in await fail(here, *arguments, text=text)


async def test_a_password_is_no_argument(here: Surroundings) -> None:
    assert "no such option" in (await fail(here, "user", "create", "a@example.com", "--password", PASSWORD)).lower()
