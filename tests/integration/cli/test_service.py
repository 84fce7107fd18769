"""The commands against the service itself."""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from yarl import URL

from edge.auth.scopes import SCOPES
from shared.cli.user.commands import login as login_module
from shared.cli.user.failure import FAILED, INTERRUPTED, NOT_LOGGED_IN, TRY_LATER
from shared.cli.user.money import render_usd
from tests.contract.people import Person, make_person
from tests.contract.service import Service
from tests.e2e.stack import DevStack
from tests.e2e.test_refusals import new_key
from tests.integration.cli.conftest import KEY, WITHIN_S, Cli


@pytest.fixture
def user(stranger: Cli, dev_scripted: DevStack) -> Cli:
    """Somebody with the key and the URL that `b3os dev` prints."""
    stranger.environ |= {"B3OS_URL": dev_scripted.base_url, "B3OS_API_KEY": dev_scripted.api_key}
    return stranger


def scripted(*steps: object) -> str:
    return json.dumps({"scripted": steps})


def test_models_lists_what_is_served(user: Cli, dev_scripted: DevStack) -> None:
    assert [model["id"] for model in user.run("models", "--json").json["data"]] == [dev_scripted.model]
    assert dev_scripted.model in user.run("models").out


def test_chat_writes_the_answer(user: Cli) -> None:
    ran = user.run("chat", "--usage", scripted(["text", "Hel"], ["text", "lo é."]))
    assert (ran.code, ran.out) == (0, "Hello é.\n")
    assert ran.err.startswith("tokens: ")
    assert "2 output" in ran.err


def test_chat_thinks_with_the_budget_that_was_given(user: Cli) -> None:
    events = user.run("chat", "--json", "--thinking", "1024", scripted(["thinking", "Hm."], ["text", "Hi."])).lines
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas] == ["thinking_delta", "signature_delta", "text_delta"]


def test_chat_takes_a_system_prompt_and_bounds(user: Cli) -> None:
    ran = user.run("chat", "--system", "Be brief.", "--max-tokens", "1", scripted(["text", "a "], ["text", "b"]))
    assert (ran.code, ran.out) == (0, "a \n")
    assert "max_tokens" in ran.err


def test_chat_tells_what_fails_after_the_head(user: Cli) -> None:
    ran = user.run("chat", scripted(["text", "Hel"], ["fail"]))
    assert (ran.code, ran.out) == (TRY_LATER, "Hel\n")
    assert "(req_" in ran.err


def test_chat_tells_what_is_refused_before_it(user: Cli) -> None:
    ran = user.run("chat", "--thinking", "1", "Hi")
    assert (ran.code, ran.out) == (FAILED, "")
    assert "budget_tokens" in ran.err
    assert "(req_" in ran.err


def test_an_unknown_key_is_told_to_log_in(user: Cli) -> None:
    ran = user.run("chat", "Hi", B3OS_API_KEY=KEY)
    assert ran.code == NOT_LOGGED_IN
    assert "b3os login" in ran.err
    assert "(req_" in ran.err


def test_an_interruption_stops_the_service_s_answer(user: Cli) -> None:
    process = user.start("chat", scripted(["text", "Hel"], ["pause", 600], ["text", "lo"]))
    assert process.stdout is not None
    assert process.stdout.read(3) == "Hel"
    process.send_signal(signal.SIGINT)
    assert user.finish(process).code == INTERRUPTED


@pytest.fixture
def keeper(user: Cli, dev_scripted: DevStack) -> Cli:
    """Somebody whose key may do everything in an organization of his own."""
    place = (f"--org=cli-{secrets.token_hex(4)}", "--project=web", "--create-missing")
    made = new_key(dev_scripted, *place, *(f"--scope={scope}" for scope in SCOPES))
    user.environ["B3OS_API_KEY"] = made["key"]
    return user


def until(is_so: Callable[[], bool]) -> None:
    """A node writes its books beside its answers."""
    deadline_s = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not come about in time"
        time.sleep(0.02)


def test_a_key_is_made_used_listed_and_revoked(keeper: Cli) -> None:
    made = keeper.run(
        *("keys", "create", "--name", "ci", "--project", "web", "--scope", "infer:run", "--quiet"),
        *("--cap", "2.50/month", "--expires", "30d"),
    )
    assert (made.code, made.err) == (0, "")
    secret = made.out.strip()
    listed = {key["name"]: key for key in keeper.run("keys", "list", "--json").json["data"]}
    assert listed["ci"]["spend_cap"] == {"nano_usd": 2_500_000_000, "period": "month"}
    assert "$2.50/month" in keeper.run("keys", "list").out
    chat = ("chat", "--model", "b3os/scripted", "Hi")
    assert keeper.run(*chat, B3OS_API_KEY=secret).code == 0
    assert keeper.run("keys", "revoke", listed["ci"]["id"]).code == 0
    assert keeper.run(*chat, B3OS_API_KEY=secret).code == NOT_LOGGED_IN
    assert keeper.run("keys", "create", "--name", "x", "--project", "nowhere").code == FAILED


def test_requests_and_usage_tell_what_was_asked(keeper: Cli, dev_scripted: DevStack) -> None:
    for words in ("one", "two"):
        assert keeper.run("chat", scripted(["text", f"{words} "], ["text", words])).code == 0
    assert keeper.run("chat", "--model", "b3os/other", "Hi").code == FAILED
    until(lambda: len(keeper.run("requests", "--json").json["data"]) == 3)
    until(lambda: keeper.run("requests", "--status", "running", "--json").json["data"] == [])

    refused, second, first = keeper.run("requests", "--json").json["data"]
    assert (refused["status"], refused["outcome"]) == (404, "refused")
    assert [(each["status"], each["usage"]["output_tokens"]) for each in (second, first)] == [(200, 2), (200, 2)]
    head, *rows = [line.split() for line in keeper.run("requests", "--status", "200").out.splitlines()]
    at = [head.index(name) for name in ("ID", "TIME", "OUTCOME", "IN", "OUT", "COST", "MODEL", "KEY")]
    assert [[row[column] for column in at] for row in rows] == [
        [
            *(each["id"], each["created_at"], each["outcome"], str(each["usage"]["input_tokens"]), "2"),
            *(render_usd(each["cost_nano_usd"]), dev_scripted.model, each["key_id"]),
        ]
        for each in (second, first)
    ]
    shown = keeper.run("requests", first["id"])
    assert "usage.output_tokens" in shown.out
    page = keeper.run("requests", "--limit", "1", "--key", first["key_id"])
    assert f"--cursor {refused['id']}" in page.err
    older = keeper.run("requests", "--cursor", refused["id"], "--model", dev_scripted.model, "--json").json["data"]
    assert older == [second, first]
    unknown = keeper.run("requests", "req_x")
    assert (unknown.code, unknown.out) == (FAILED, "")

    days = ("--from", first["created_at"][:10])
    for by, name in (("key", first["key_id"]), ("model", dev_scripted.model)):
        told = keeper.run("usage", "--by", by, *days, "--json").json
        assert (told["total"]["requests"], told["total"]["output_tokens"]) == (2, 4)
        row = keeper.run("usage", "--by", by, *days).out.splitlines()[1].split()
        cost = render_usd(first["cost_nano_usd"] + second["cost_nano_usd"])
        assert (row[0], row[1], row[3], row[-1]) == (name, "2", "4", cost)
    assert keeper.run("usage", *days).out.splitlines()[1].startswith(first["created_at"][:8])
    assert keeper.run("usage", "--from", "2024-01-01", "--to", "2026-01-01").code == FAILED


@pytest.fixture
def person(dev_scripted: DevStack) -> Iterator[Person]:
    """An owner of `dev`, made by `b3os admin` and logged in to the dashboard."""
    service = Service(dev_scripted)
    person = Person(service, make_person(dev_scripted))
    person.log_in()
    yield person
    service.close()


class Browser:
    """In it a person decides while `b3os login` sleeps: it takes the place of that one's `time` too."""

    def __init__(self, person: Person, decision: str) -> None:
        self._person, self._decision = person, decision
        self.opened: list[URL] = []
        self.slept: list[float] = []

    def open_page(self, url: str) -> None:
        self.opened.append(URL(url))

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        code = self.opened[-1].query["user_code"]
        waiting = self._person.send("GET", f"/v1/auth/device?user_code={code}").message
        assert (waiting["client"], waiting["user_code"]) == ("b3os-cli", code)
        decided = self._person.send(
            "POST", "/v1/auth/device/decision", {"user_code": code, "decision": self._decision}
        )
        assert decided.status == 204


def browse(person: Person, decision: str, monkeypatch: pytest.MonkeyPatch) -> Browser:
    browser = Browser(person, decision)
    monkeypatch.setattr(login_module, "time", browser)
    monkeypatch.setattr(login_module, "open_page", browser.open_page)
    return browser


def test_a_login_by_device_from_its_code_to_the_logout(
    stranger: Cli, dev_scripted: DevStack, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = browse(person, "approve", monkeypatch)
    logged_in = stranger.run("login", "--url", dev_scripted.edge_url)
    assert (logged_in.code, logged_in.err) == (0, "")
    assert browser.opened[0].query["user_code"] in logged_in.out
    assert person.email in logged_in.out
    assert browser.slept == [5]

    told = stranger.run("whoami", "--json").json
    assert (told["user"]["email"], told["organization"], told["key"]["kind"]) == (person.email, "dev", "token")
    assert stranger.run("chat", scripted(["text", "Hello."])).out == "Hello.\n"
    token = stranger.file.token_of(dev_scripted.edge_url)
    assert token is not None
    assert token not in logged_in.out

    made = stranger.run("keys", "create", "--name", "of-a-person", "--project", "default", "--quiet")
    assert stranger.run("models", B3OS_API_KEY=made.out.strip()).code == 0
    assert stranger.run("logout").code == 0
    assert not stranger.file.path.exists()
    assert stranger.run("whoami", B3OS_URL=dev_scripted.edge_url).code == NOT_LOGGED_IN
    dead = stranger.run("whoami", B3OS_URL=dev_scripted.edge_url, B3OS_API_KEY=token)
    assert dead.code == NOT_LOGGED_IN
    assert stranger.run("models", B3OS_URL=dev_scripted.edge_url, B3OS_API_KEY=made.out.strip()).code == 0


def test_a_login_that_somebody_denies_keeps_nothing(
    stranger: Cli, dev_scripted: DevStack, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    browse(person, "deny", monkeypatch)
    ran = stranger.run("login", "--url", dev_scripted.edge_url)
    assert ran.code == NOT_LOGGED_IN
    assert "denied" in ran.err
    assert not stranger.file.path.exists()


def test_a_login_that_begins_at_the_service_can_be_stopped(user: Cli) -> None:
    process = user.start("login", "--no-browser", "--json")
    assert process.stdout is not None
    begun = json.loads(process.stdout.readline())
    assert begun["verification_uri"].endswith("/device")
    process.send_signal(signal.SIGINT)
    assert user.finish(process).code == INTERRUPTED
