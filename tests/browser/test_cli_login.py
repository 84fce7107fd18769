"""`b3os login` against the whole service: a program waits at a terminal, and a person decides in a browser."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, expect
from redis import Redis

from edge.auth import redis_names as names
from shared.cli.user.failure import FAILED, NOT_LOGGED_IN
from tests.browser.page import APPROVED, CODE, DECISION, DENIED, LOG_IN, DevicePage
from tests.contract.people import make_person
from tests.e2e.stack import DevStack
from tests.integration.cli.conftest import Cli, Ran

EVERY_ENDING = ("approved", "denied", "expired")


@dataclass(frozen=True)
class Waiting:
    """`b3os login` that has shown its code."""

    cli: Cli
    process: subprocess.Popen[str]
    url: str
    user_code: str

    async def ends(self) -> Ran:
        """Its end; it asks every five seconds."""
        return await asyncio.to_thread(self.cli.finish, self.process)


@pytest.fixture(scope="module")
def waiting(dev_scripted: DevStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Waiting]]:
    """One for each ending; they begin at the same time, so that the tests wait less."""
    begun = {}
    for ending in EVERY_ENDING:
        home = tmp_path_factory.mktemp(ending)
        cli = Cli(home, {"XDG_CONFIG_HOME": str(home), "B3OS_URL": dev_scripted.base_url})
        begun[ending] = (cli, cli.start("login", "--no-browser"))
    try:
        yield {ending: Waiting(*each, *read_code(each[1])) for ending, each in begun.items()}
    finally:
        for _, process in begun.values():
            process.kill()
            process.communicate()


def read_code(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The address and the code, as a person reads them."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(r"Open (\S+)\nand enter the code +(\S+)\n", said):
            return found[1], found[2]
    raise AssertionError(f"b3os login ended early: {said}")


@pytest.fixture(scope="module")
def email(dev_scripted: DevStack) -> str:
    return make_person(dev_scripted, "member")


async def come_to_the_decision(tab: Page, waiting: Waiting, email: str, pictures: Path | None = None) -> DevicePage:
    page = DevicePage(tab, waiting.url.removesuffix("/device"), pictures)
    await page.tab.goto(waiting.url)
    await page.sees(LOG_IN)
    await page.log_in(email)
    await page.sees(CODE)
    await page.enter(waiting.user_code)
    await page.sees(DECISION)
    return page


async def test_a_person_who_says_yes_has_a_program_that_works(
    waiting: dict[str, Waiting], tab: Page, email: str, dev_scripted: DevStack, pictures: Path
) -> None:
    asks = waiting["approved"]
    assert asks.url == f"{dev_scripted.edge_url}/device"
    page = await come_to_the_decision(tab, asks, email, pictures)
    for name, value in (
        ("It calls itself", "“b3os-cli”"),
        ("It asks from", "127.0.0.1"),
        ("It asked", "less than a minute ago"),
        ("Its code", asks.user_code),
        ("You are", email),
    ):
        await expect(page.fact(name)).to_have_text(value)
    await page.press("Approve")
    await page.sees(APPROVED)
    ran = await asks.ends()
    assert (ran.code, ran.err) == (0, "")
    assert f"Logged in to {dev_scripted.edge_url}" in ran.out
    whoami = (await asyncio.to_thread(asks.cli.run, "whoami", "--json")).json
    assert (whoami["user"]["email"], whoami["organization"], whoami["project"]) == (email, "dev", "default")
    answer = await asyncio.to_thread(
        asks.cli.run, "chat", json.dumps({"scripted": [["text", "Hello from the node."]]})
    )
    assert (answer.code, answer.out) == (0, "Hello from the node.\n")


async def test_a_no_and_a_code_out_of_date_are_told_to_person_and_program(
    waiting: dict[str, Waiting], profile: BrowserContext, email: str, dev_scripted: DevStack
) -> None:
    denied, expired = waiting["denied"], waiting["expired"]
    page = await come_to_the_decision(await profile.new_page(), denied, email)
    await page.press("Deny")
    await page.sees(DENIED)
    await page.press("Log out")
    page = await come_to_the_decision(page.tab, expired, email)
    by_code = names.device_user_code(expired.user_code)
    with Redis.from_url(dev_scripted.redis_url, decode_responses=True) as redis:
        assert redis.delete(names.device(str(redis.get(by_code))), by_code) == 2  # as if ten minutes had passed
    await page.press("Approve")
    await page.sees(CODE)
    await page.is_told("Nobody waits under this code: it is wrong, out of date or used.")
    for asks, code, words in ((denied, NOT_LOGGED_IN, "denied"), (expired, FAILED, "out of date")):
        ran = await asks.ends()
        assert (ran.code, words in ran.err) == (code, True), ran
        assert (await asyncio.to_thread(asks.cli.run, "whoami")).code == NOT_LOGGED_IN
