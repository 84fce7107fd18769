"""The commands against the service itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from shared.cli.user.failure import FAILED, INTERRUPTED, NOT_LOGGED_IN, TRY_LATER
from tests.e2e.stack import ROOT, DevStack
from tests.integration.cli.conftest import KEY, Cli


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
    """Somebody whose key may make keys."""
    scopes = [part for scope in ("infer:run", "keys:read", "keys:write") for part in ("--scope", scope)]
    place = ["--org", "cli", "--project", "web", "--create-missing"]
    made = subprocess.run(
        [sys.executable, "-m", "shared.cli", "keys", "create", *place, "--name", "keeper", *scopes],
        env={**os.environ, "B3OS_REDIS_URL": dev_scripted.redis_url},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    user.environ["B3OS_API_KEY"] = made.stdout.strip()
    return user


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


def test_a_login_that_begins_at_the_service_can_be_stopped(user: Cli) -> None:
    process = user.start("login", "--no-browser", "--json")
    assert process.stdout is not None
    begun = json.loads(process.stdout.readline())
    assert begun["verification_uri"].endswith("/device")
    process.send_signal(signal.SIGINT)
    assert user.finish(process).code == INTERRUPTED
