"""`b3os login`, `logout` and `whoami` against a played server, on a clock of the test's own."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.cli.user.commands import login as login_module
from shared.cli.user.device import GRANT
from shared.cli.user.failure import FAILED, INTERRUPTED, NOT_LOGGED_IN, TRY_LATER, UNREACHABLE, USAGE
from tests.integration.cli.conftest import KEY, Cli
from tests.integration.cli.played import PlayedServer, Reply, as_json

CODE, TOKEN, ME = "/v1/auth/device/code", "/v1/auth/device/token", "/v1/auth/session"
PAT = "b3os_pat_" + "1" * 32 + "_1111111"
BEGUN = {
    "device_code": "dev-secret",
    "user_code": "BCDF-GHJK",
    "verification_uri": "https://b3os.example/device",
    "verification_uri_complete": "https://b3os.example/device?user_code=BCDF-GHJK",
    "expires_in": 600,
    "interval": 5,
}
SESSION = {
    "user": {"email": "a@b.example"},
    "organization": "acme",
    "scopes": ["infer:run"],
    "csrf_token": "c-secret",
}
GRANTED = as_json({"access_token": PAT, "token_type": "Bearer", "scope": "infer:run"})


def refused(error: str, status: int = 400, **headers: str) -> Reply:
    return as_json({"error": error}, status, **headers)


class FakeTime:
    """Sleeping is all that takes time."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.now_s += delay_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr(login_module, "time", clock)
    return clock


@pytest.fixture
def user(stranger: Cli, server: PlayedServer) -> Cli:
    """Somebody without a key, whose login would go well at once."""
    stranger.environ["B3OS_URL"] = server.url
    server.routes = {("POST", CODE): as_json(BEGUN), ("POST", TOKEN): [GRANTED], ("GET", ME): as_json(SESSION)}
    return stranger


def test_a_login_shows_the_code_waits_and_keeps_the_token(user: Cli, server: PlayedServer, clock: FakeTime) -> None:
    server.routes["POST", TOKEN] = [refused("authorization_pending"), refused("authorization_pending"), GRANTED]
    ran = user.run("login", "--no-browser")
    assert ran.code == 0, ran.err
    assert "https://b3os.example/device\n" in ran.out
    assert "BCDF-GHJK" in ran.out
    assert "acme" in ran.out
    assert clock.slept == [5, 5, 5]
    assert server.bodies(CODE) == [{"client": "b3os-cli"}]
    assert [(body["grant_type"], body["device_code"]) for body in server.bodies(TOKEN)] == [(GRANT, "dev-secret")] * 3
    assert user.file.token_of(server.url) == PAT
    assert stat.S_IMODE(user.file.path.stat().st_mode) == 0o600
    for secret in (PAT, "dev-secret", "c-secret"):
        assert secret not in ran.out + ran.err


def test_after_a_login_the_server_need_not_be_named(user: Cli, server: PlayedServer, clock: FakeTime) -> None:
    assert user.run("login", "--no-browser").code == 0
    ran = user.run("whoami", B3OS_URL=None)
    assert ran.code == 0, ran.err
    assert "a@b.example" in ran.out
    assert server.seen[-1].headers["authorization"] == f"Bearer {PAT}"


def test_a_login_as_json_is_two_events_without_secrets(user: Cli, server: PlayedServer, clock: FakeTime) -> None:
    ran = user.run("login", "--no-browser", "--json")
    begun, done = ran.lines
    assert begun["event"] == "code"
    assert begun["user_code"] == "BCDF-GHJK"
    assert (done["event"], done["url"], done["session"]["organization"]) == ("logged_in", server.url, "acme")
    assert "secret" not in ran.out
    assert PAT not in ran.out


@pytest.mark.parametrize(
    ("replies", "slept"),
    [
        ([refused("slow_down"), refused("slow_down"), GRANTED], [5, 10, 15]),
        ([refused("authorization_pending"), refused("slow_down"), GRANTED], [5, 5, 10]),
        ([as_json({}, 503), as_json({}, 503), GRANTED], [5, 10, 20]),
        ([as_json({}, 429, Retry_After="30"), GRANTED], [5, 30]),
        ([as_json({}, 503, Retry_After="9999"), GRANTED], [5, 60]),
        ([Reply(raw=b""), Reply(raw=b"junk\r\n\r\n"), GRANTED], [5, 10, 20]),
    ],
    ids=["slow down", "slow down later", "busy", "told when", "told too long", "broken"],
)
def test_the_pace_is_the_server_s(
    user: Cli, server: PlayedServer, clock: FakeTime, replies: list[Reply], slept: list[float]
) -> None:
    server.routes["POST", TOKEN] = replies
    assert user.run("login", "--no-browser").code == 0
    assert clock.slept == slept


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (refused("access_denied"), NOT_LOGGED_IN, "was denied"),
        (refused("expired_token"), FAILED, "out of date"),
        (refused("invalid_grant"), FAILED, "invalid_grant"),
        (as_json({"detail": "no such client", "code": "forbidden"}, 403), FAILED, "no such client"),
        (as_json({"access_token": ""}), FAILED, "no token"),
        (as_json({"access_token": "a b"}), FAILED, "no token"),
        (as_json({"access_token": "x\r\nHost: evil"}), FAILED, "no token"),
        (as_json({"access_token": "x" * 100_000}), FAILED, "no token"),
        (as_json({"access_token": 5}), FAILED, "no token"),
        (as_json([]), FAILED, "not as a B3OS server does"),
    ],
)
def test_what_is_no_token_ends_the_login(
    user: Cli, server: PlayedServer, clock: FakeTime, reply: Reply, code: int, words: str
) -> None:
    server.routes["POST", TOKEN] = [refused("authorization_pending"), reply]
    ran = user.run("login", "--no-browser")
    assert ran.code == code
    assert words in ran.err
    assert not user.file.path.exists()


def test_a_code_that_nobody_confirms_ends(user: Cli, server: PlayedServer, clock: FakeTime) -> None:
    server.routes["POST", CODE] = as_json({**BEGUN, "expires_in": 32})
    server.routes["POST", TOKEN] = refused("authorization_pending")
    ran = user.run("login", "--no-browser")
    assert (ran.code, clock.slept) == (FAILED, [5] * 6)
    assert "out of date" in ran.err


@pytest.mark.parametrize(
    ("changes", "slept"),
    [
        ({"interval": None}, 5),
        ({"interval": 0}, 1),
        ({"interval": -3}, 1),
        ({"interval": 10**12}, 60),
        ({"interval": "soon"}, 5),
        ({"expires_in": 10**12}, 5),
    ],
)
def test_times_out_of_bounds_are_brought_into_them(
    user: Cli, server: PlayedServer, clock: FakeTime, changes: dict[str, Any], slept: float
) -> None:
    server.routes["POST", CODE] = as_json({**BEGUN, **changes})
    assert user.run("login", "--no-browser").code == 0
    assert clock.slept == [slept]


@pytest.mark.parametrize("missing", ["device_code", "user_code", "verification_uri"])
def test_a_login_that_can_not_be_shown_is_refused(
    user: Cli, server: PlayedServer, clock: FakeTime, missing: str
) -> None:
    server.routes["POST", CODE] = as_json({**BEGUN, missing: None})
    ran = user.run("login", "--no-browser")
    assert (ran.code, clock.slept) == (FAILED, [])
    assert "began no login" in ran.err


def test_what_a_server_has_shown_is_one_line_and_moves_nothing(
    user: Cli, server: PlayedServer, clock: FakeTime
) -> None:
    server.routes["POST", CODE] = as_json({**BEGUN, "user_code": "A\x1b[2J\nLogged in!", "verification_uri": "x\x07"})
    ran = user.run("login", "--no-browser")
    assert "A␛[2J Logged in!" in ran.out
    assert "\x1b" not in ran.out
    assert "\x07" not in ran.out


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    """A browser that writes down what it is given."""
    program = tmp_path / "browser"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> "$0.opened"\n')
    program.chmod(0o700)
    return program


@pytest.mark.parametrize(
    ("page", "arguments", "opened"),
    [
        (BEGUN["verification_uri_complete"], [], [BEGUN["verification_uri_complete"]]),
        (None, [], [BEGUN["verification_uri"]]),
        ("file:///etc/passwd", [], []),
        ("--help", [], []),
        (BEGUN["verification_uri_complete"], ["--no-browser"], []),
    ],
)
def test_a_page_is_opened_if_it_is_one(
    user: Cli, server: PlayedServer, browser: Path, page: object, arguments: list[str], opened: list[object]
) -> None:
    server.routes["POST", CODE] = as_json({**BEGUN, "interval": 1, "verification_uri_complete": page})
    process = user.start("login", *arguments, BROWSER=str(browser))
    assert user.finish(process).code == 0
    written = Path(f"{browser}.opened")
    assert (written.read_text().splitlines() if written.exists() else []) == opened


def test_an_interruption_while_waiting_is_an_end_like_another(user: Cli, server: PlayedServer) -> None:
    asked = threading.Event()

    def pending(_seen: object) -> Reply:
        asked.set()
        return refused("authorization_pending")

    server.routes["POST", CODE] = as_json({**BEGUN, "interval": 1})
    server.routes["POST", TOKEN] = pending
    process = user.start("login", "--no-browser")
    assert asked.wait(60)
    process.send_signal(signal.SIGINT)
    ran = user.finish(process)
    assert ran.code == INTERRUPTED
    assert ran.err.strip() == "stopped"
    assert not user.file.path.exists()


def test_a_file_that_can_not_be_used_is_told_before_the_login(
    user: Cli, server: PlayedServer, clock: FakeTime
) -> None:
    user.file.save(server.url, PAT)
    user.file.path.chmod(0o644)
    ran = user.run("login", "--no-browser")
    assert ran.code == FAILED
    assert "can be read by others" in ran.err
    assert server.seen == []


def test_a_second_login_ends_the_first_token(user: Cli, server: PlayedServer, clock: FakeTime) -> None:
    older = "b3os_pat_" + "2" * 32 + "_2222222"
    user.file.save(server.url, older)
    server.routes["POST", "/v1/auth/logout"] = Reply(status=204)
    assert user.run("login", "--no-browser").code == 0
    (ended,) = [seen for seen in server.seen if seen.path == "/v1/auth/logout"]
    assert ended.headers["authorization"] == f"Bearer {older}"
    assert user.file.token_of(server.url) == PAT


def test_a_token_that_can_not_be_kept_is_revoked(
    user: Cli, server: PlayedServer, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    server.routes["POST", "/v1/auth/logout"] = Reply(status=204)
    ran = user.run("login", "--no-browser")
    assert ran.code == FAILED
    assert "No space left" in ran.err
    assert (server.seen[-1].path, server.seen[-1].headers["authorization"]) == ("/v1/auth/logout", f"Bearer {PAT}")


def test_a_login_holds_where_the_session_can_not_be_shown(user: Cli, server: PlayedServer, clock: FakeTime) -> None:
    server.routes["GET", ME] = as_json({"detail": "not for tokens"}, 403)
    ran = user.run("login", "--no-browser", B3OS_API_KEY=KEY)
    assert ran.code == 0
    assert f"Logged in to {server.url}" in ran.out
    assert "B3OS_API_KEY is set" in ran.err


@pytest.fixture
def logged_in(user: Cli, server: PlayedServer) -> Iterator[Cli]:
    user.file.save(server.url, PAT)
    yield user
    assert not user.file.path.exists(), "the token must be gone from this machine in any case"


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (Reply(status=204), 0, ""),
        (as_json({}), 0, ""),
        (as_json({"detail": "revoked already"}, 401), 0, ""),
        (Reply(status=404), 0, "no way to revoke"),
        (as_json({"detail": "for sessions"}, 403), 0, "no way to revoke"),
        (as_json({"detail": "later"}, 503), TRY_LATER, "may still be valid"),
        (Reply(raw=b""), UNREACHABLE, "may still be valid"),
        (Reply(b"<html>"), FAILED, "may still be valid"),
    ],
)
def test_a_logout_removes_the_token_whatever_the_server_says(
    logged_in: Cli, server: PlayedServer, reply: Reply, code: int, words: str
) -> None:
    server.routes["POST", "/v1/auth/logout"] = reply
    ran = logged_in.run("logout")
    assert ran.code == code
    assert words in ran.err
    assert bool(ran.err) == bool(words)
    assert server.seen[-1].headers["authorization"] == f"Bearer {PAT}"


def test_a_logout_removes_a_token_that_others_could_read(logged_in: Cli, server: PlayedServer) -> None:
    logged_in.file.path.chmod(0o644)
    server.routes["POST", "/v1/auth/logout"] = Reply(status=204)
    ran = logged_in.run("logout", "--json", B3OS_URL=None)
    assert ran.json == {"url": server.url, "revoked": True}


def test_a_logout_removes_a_damaged_file(logged_in: Cli) -> None:
    logged_in.file.path.write_text("{")
    assert logged_in.run("logout", B3OS_URL=None).code == 0


def test_a_logout_without_a_login_is_no_fault(stranger: Cli) -> None:
    ran = stranger.run("logout", "--json")
    assert (ran.code, ran.json) == (0, {"url": None, "revoked": False})


def test_whoami_needs_a_login_and_says_how(user: Cli, stranger: Cli, server: PlayedServer) -> None:
    ran = user.run("whoami")
    assert ran.code == NOT_LOGGED_IN
    assert "b3os login" in ran.err
    assert server.seen == []
    assert stranger.run("whoami", B3OS_URL=None).code == USAGE


def test_whoami_shows_fields_that_nobody_knows_and_keeps_the_csrf_token(cli: Cli, server: PlayedServer) -> None:
    server.routes["GET", ME] = as_json({**SESSION, "future": {"x": [1, 2]}})
    assert cli.run("whoami", "--json").json == {
        name: value for name, value in {**SESSION, "future": {"x": [1, 2]}}.items() if name != "csrf_token"
    }
    shown = cli.run("whoami").out
    assert "future.x" in shown
    assert "c-secret" not in shown


def test_a_token_goes_to_its_own_server_alone(user: Cli, server: PlayedServer) -> None:
    user.file.save("https://elsewhere.example", PAT)
    assert user.run("whoami").code == NOT_LOGGED_IN
    assert server.seen == []


def test_the_variable_wins_over_the_file(user: Cli, server: PlayedServer) -> None:
    user.file.save(server.url, PAT)
    assert user.run("whoami", B3OS_API_KEY=KEY).code == 0
    assert server.seen[-1].headers["authorization"] == f"Bearer {KEY}"


def test_with_both_variables_set_the_file_is_not_even_read(cli: Cli, server: PlayedServer) -> None:
    cli.file.save(server.url, PAT)
    cli.file.path.write_text("{")
    server.routes["GET", ME] = as_json(SESSION)
    assert cli.run("whoami").code == 0


@pytest.mark.parametrize("key", ["hunter2 hunter2", "hunter2\r\nHost: evil", "hünter2", "hunter2" * 100])
def test_a_variable_that_holds_no_key_is_refused_and_not_told_back(user: Cli, server: PlayedServer, key: str) -> None:
    ran = user.run("whoami", B3OS_API_KEY=key)
    assert ran.code == USAGE
    assert "B3OS_API_KEY" in ran.err
    assert "nter2" not in ran.err
    assert server.seen == []


def test_the_file_is_json_with_an_entry_a_server(user: Cli, server: PlayedServer, clock: FakeTime) -> None:
    assert user.run("login", "--no-browser").code == 0
    assert json.loads(user.file.path.read_text()) == {
        "version": 1,
        "current": server.url,
        "servers": {server.url: {"token": PAT}},
    }
