"""`b3os keys`, `models`, `requests` and `usage` against a played server."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from shared.cli.user.commands import keys as keys_module
from shared.cli.user.commands import requests as requests_module
from shared.cli.user.failure import FAILED, INTERRUPTED, NOT_LOGGED_IN, TRY_LATER, UNREACHABLE, USAGE
from shared.cli.user.pages import LONGEST_WAIT_S, MOST_WAITS
from tests.integration.cli.conftest import KEY, Cli
from tests.integration.cli.played import PlayedServer, Reply, Seen, as_json

KEYS, MODELS, REQUESTS, USAGE_PATH = "/v1/keys", "/v1/infer/models", "/v1/requests", "/v1/usage"
A_KEY = {
    "id": "key_1",
    "name": "ci",
    "organization": "acme",
    "project": "web",
    "scopes": ["infer:run", "models:read"],
    "status": "active",
    "hint": "abcd",
    "spend_cap": {"nano_usd": 12_500_000_000, "period": "month"},
    "created_at": "2026-11-30T12:00:00Z",
    "created_by": None,
    "expires_at": None,
    "future": {"field": 1},
}
SECRET = "b3os_sk_" + "9" * 32 + "_9999999"
A_RECORD = {
    "id": "req_1",
    "created_at": "2026-11-30T12:00:00.123Z",
    "status": 200,
    "outcome": "finished",
    "usage": {"input_tokens": 3, "output_tokens": 5, "cached_tokens": 0, "image_bytes": 0},
    "cost_nano_usd": 1_000,
    "total_ms": 12.5,
    "model": "b3os/m",
    "key_id": "key_1",
    "phases_ms": {"queue": 1.5},
}
HOSTILE = "\x1b[2J\n\u202e"


def test_keys_are_listed(cli: Cli, server: PlayedServer) -> None:
    server.routes["GET", KEYS] = as_json({"data": [A_KEY]})
    head, row = cli.run("keys", "list").out.splitlines()
    assert head.split() == ["ID", "SECRET", "STATUS", "PROJECT", "SCOPES", "CAP", "EXPIRES", "NAME"]
    assert [part.strip() for part in row.split("  ") if part.strip()] == [
        *("key_1", "abcd…", "active", "web", "infer:run, models:read", "$12.50/month", "never", "ci")
    ]
    assert server.seen[-1].headers["authorization"] == f"Bearer {KEY}"


def test_all_keys_are_listed_page_by_page(cli: Cli, server: PlayedServer) -> None:
    def play(seen: Seen) -> Any:
        at = int(seen.query.get("cursor", ["0"])[0])
        page = [{**A_KEY, "id": f"key_{at}"}]
        return as_json({"data": page, "next_cursor": str(at + 1) if at < 2 else None})

    server.routes["GET", KEYS] = play
    told = cli.run("keys", "list", "--json").json
    assert [key["id"] for key in told["data"]] == ["key_0", "key_1", "key_2"]
    assert told["next_cursor"] is None
    assert [seen.query["limit"] for seen in server.seen] == [["200"]] * 3


def test_a_server_whose_pages_go_round_is_not_asked_for_ever(cli: Cli, server: PlayedServer) -> None:
    server.routes["GET", KEYS] = as_json({"data": [A_KEY], "next_cursor": "again"})
    ran = cli.run("keys", "list")
    assert len(server.seen) == 2
    assert "more" in ran.err


def test_a_key_is_made_as_it_was_asked_for(cli: Cli, server: PlayedServer) -> None:
    server.routes["POST", KEYS] = as_json({**A_KEY, "key": SECRET}, 201)
    ran = cli.run(
        *("keys", "create", "--name", "ci", "--project", "web", "--scope", "infer:run", "--scope", "models:read"),
        *("--cap", "12.50/month", "--expires", "2030-01-31T12:00:00+01:00"),
    )
    assert server.bodies(KEYS) == [
        {
            "name": "ci",
            "project": "web",
            "scopes": ["infer:run", "models:read"],
            "spend_cap": {"nano_usd": 12_500_000_000, "period": "month"},
            "expires_at": "2030-01-31T11:00:00Z",
        }
    ]
    assert ran.out == SECRET + "\n"
    assert "key_1" in ran.err
    assert "not shown again" in ran.err
    assert SECRET not in ran.err


def test_what_was_not_said_is_not_sent(cli: Cli, server: PlayedServer) -> None:
    server.routes["POST", KEYS] = as_json({**A_KEY, "key": SECRET}, 201)
    ran = cli.run("keys", "create", "--name", "ci", "--project", "web", "--quiet")
    assert server.bodies(KEYS) == [{"name": "ci", "project": "web"}]
    assert (ran.out, ran.err) == (SECRET + "\n", "")


def test_a_new_key_as_json_is_what_the_server_sent(cli: Cli, server: PlayedServer) -> None:
    server.routes["POST", KEYS] = as_json({**A_KEY, "key": SECRET}, 201)
    assert cli.run("keys", "create", "--name", "ci", "--project", "web", "--json").json == {**A_KEY, "key": SECRET}


@pytest.mark.parametrize("secret", [None, "", "a b", "x\x1b[2J", 5])
def test_a_secret_that_is_none_is_a_failure(cli: Cli, server: PlayedServer, secret: object) -> None:
    server.routes["POST", KEYS] = as_json({**A_KEY, "key": secret}, 201)
    ran = cli.run("keys", "create", "--name", "ci", "--project", "web", "--quiet")
    assert (ran.code, ran.out) == (FAILED, "")
    assert "key_1" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--project", "web"],
        ["--name", "ci"],
        ["--name", "ci", "--project", "web", "--cap", "lots"],
        ["--name", "ci", "--project", "web", "--expires", "soon"],
        ["--name", "ci", "--project", "web", "--expires", "9999-12-31"],
    ],
)
def test_a_wrong_command_line_asks_nobody(cli: Cli, server: PlayedServer, arguments: list[str]) -> None:
    ran = cli.run("keys", "create", *arguments)
    assert ran.code == USAGE
    assert "Traceback" not in ran.err
    assert server.seen == []


def test_a_key_is_revoked_by_its_id_and_no_path_is_made_of_it(cli: Cli, server: PlayedServer) -> None:
    server.routes["DELETE", f"{KEYS}/key_1"] = as_json({**A_KEY, "status": "revoked"})
    assert cli.run("keys", "revoke", "key_1").out == "revoked key_1\n"
    assert cli.run("keys", "revoke", "key_1", "--json").json["status"] == "revoked"
    cli.run("keys", "revoke", "a/../b?x=1#y")
    assert server.seen[-1].path == f"{KEYS}/a%2F..%2Fb%3Fx%3D1%23y"


def test_models_are_listed(cli: Cli, server: PlayedServer) -> None:
    model = {"id": "b3os/m", "context_window": 8192, "max_output_tokens": 8191, "input_modalities": ["text"]}
    answer = {"object": "list", "data": [model], "future": 1}
    server.routes["GET", MODELS] = as_json(answer)
    assert cli.run("models").out.splitlines()[1].split() == ["b3os/m", "8192", "8191", "text", "-"]
    assert cli.run("models", "--json").json == answer


def test_requests_are_listed_and_one_is_shown_whole(cli: Cli, server: PlayedServer) -> None:
    listed = {"data": [A_RECORD], "next_cursor": None, "future": 1}
    server.routes["GET", REQUESTS] = as_json(listed)
    assert cli.run("requests", "--json").json == listed
    server.routes["GET", f"{REQUESTS}/req_1"] = as_json(A_RECORD)
    row = cli.run("requests").out.splitlines()[1].split()
    assert row == [
        "req_1",
        "2026-11-30T12:00:00.123Z",
        "200",
        "finished",
        "3",
        "5",
        "$0.000001",
        "12.5",
        "b3os/m",
        "key_1",
    ]
    assert "phases_ms.queue      1.5\n" in cli.run("requests", "req_1").out
    assert cli.run("requests", "req_1", "--json").json == A_RECORD


def paged(pages: dict[str | None, tuple[list[str], str | None]]) -> Any:
    """Pages of ids by their cursors."""

    def play(seen: Seen) -> Any:
        ids, following = pages[seen.query.get("cursor", [None])[0]]
        return as_json({"data": [{"id": each} for each in ids], "next_cursor": following})

    return play


def test_pages_are_followed_up_to_the_limit_and_empty_ones_too(cli: Cli, server: PlayedServer) -> None:
    server.routes["GET", REQUESTS] = paged({None: (["a"], "x"), "x": ([], "y"), "y": (["b", "c"], "z")})
    ran = cli.run("requests", "--limit", "3", "--status", "429", "--key", "key_1", "--json")
    assert ran.json == {"data": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "next_cursor": "z"}
    queries = [seen.query for seen in server.seen]
    assert [query["limit"] for query in queries] == [["3"], ["2"], ["2"]]
    assert all(query["status"] == ["429"] and query["key"] == ["key_1"] for query in queries)


def test_a_list_that_goes_on_says_where(cli: Cli, server: PlayedServer) -> None:
    server.routes["GET", REQUESTS] = paged({None: (["a"], "x"), "x": (["b"], None)})
    first = cli.run("requests", "--limit", "1")
    assert "--cursor x" in first.err
    second = cli.run("requests", "--cursor", "x")
    assert "b" in second.out
    assert second.err == ""


def test_a_cursor_that_leads_nowhere_ends(cli: Cli, server: PlayedServer) -> None:
    server.routes["GET", REQUESTS] = as_json({"data": [], "next_cursor": "again"})
    assert cli.run("requests", "--json").json == {"data": [], "next_cursor": "again"}
    assert len(server.seen) == 2


class FakeTime:
    """Sleeps that take no time, and may be broken off."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []
        self.ends_with: BaseException | None = None

    def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        if self.ends_with is not None:
            raise self.ends_with


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    for module in (requests_module, keys_module):
        monkeypatch.setattr(module, "time", clock)
    return clock


def refused(status: int = 429, **headers: str) -> Reply:
    return as_json({"title": "Rate limited", "status": status, "detail": "too many requests"}, status, **headers)


def following(ids: list[str], cursor: str | None) -> Reply:
    return as_json({"data": [{"id": each} for each in ids], "next_cursor": cursor})


LISTS = {REQUESTS: ("requests", "--limit", "10000"), KEYS: ("keys", "list")}


@pytest.mark.parametrize("path", LISTS)
def test_a_long_list_waits_where_the_server_says_so(
    cli: Cli, server: PlayedServer, clock: FakeTime, path: str
) -> None:
    server.routes["GET", path] = [
        following(["a"], "x"),
        refused(Retry_After="7"),
        refused(Retry_After="0"),
        following(["b"], "y"),
        refused(503, Retry_After="60"),
        following(["c"], None),
    ]
    ran = cli.run(*LISTS[path], "--json")
    assert (ran.code, ran.err) == (0, "")
    assert [each["id"] for each in ran.json["data"]] == ["a", "b", "c"]
    assert ran.json["next_cursor"] is None
    assert clock.slept_s == [7, 1, 60]


CUT_SHORT = {
    "a limit that never ends": (refused(Retry_After="9"), TRY_LATER, [9] * MOST_WAITS),
    "a long wait": (refused(Retry_After=str(LONGEST_WAIT_S + 1)), TRY_LATER, []),
    "a refusal that names no time": (refused(), TRY_LATER, []),
    "a key that was revoked": (refused(401), NOT_LOGGED_IN, []),
    "a fault": (refused(500), FAILED, []),
    "a connection that breaks": (Reply(raw=b""), UNREACHABLE, []),
}


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("name", CUT_SHORT)
def test_what_has_come_of_a_list_is_shown_whatever_ends_it(
    cli: Cli, server: PlayedServer, clock: FakeTime, path: str, name: str
) -> None:
    reply, code, slept_s = CUT_SHORT[name]
    for as_document in (False, True):
        clock.slept_s.clear()
        server.routes["GET", path] = [following(["first"], "x y"), following(["second"], "the rest"), reply]
        ran = cli.run(*LISTS[path], *(["--json"] if as_document else []))
        assert ran.code == code
        assert "Error: " in ran.err
        assert clock.slept_s == slept_s
        if as_document:
            assert ran.json == {"data": [{"id": "first"}, {"id": "second"}], "next_cursor": "the rest"}
        else:
            assert "first" in ran.out
            assert "second" in ran.out
            assert "There are more" in ran.err
    if path == REQUESTS:
        server.routes["GET", path] = [following(["first"], "the rest"), reply]
        assert "--cursor 'the rest'\n" in cli.run(*LISTS[path]).err


def test_an_interrupted_wait_shows_what_has_come(cli: Cli, server: PlayedServer, clock: FakeTime) -> None:
    clock.ends_with = KeyboardInterrupt()
    server.routes["GET", REQUESTS] = [following(["first"], "x"), refused(Retry_After="9")]
    ran = cli.run(*LISTS[REQUESTS])
    assert ran.code == INTERRUPTED
    assert "first" in ran.out
    assert "--cursor x" in ran.err


@pytest.mark.parametrize("path", LISTS)
def test_a_list_that_can_not_begin_waits_for_nothing(
    cli: Cli, server: PlayedServer, clock: FakeTime, path: str
) -> None:
    server.routes["GET", path] = refused(Retry_After="7")
    ran = cli.run(*LISTS[path])
    assert (ran.code, ran.out, clock.slept_s) == (TRY_LATER, "", [])
    assert "try again in 7 s" in ran.err


@pytest.mark.parametrize("cursor", ["a\nError: fake", "a\u2028b", "$(reboot)", "; reboot", "a' b\x1b[2J", "-x\r\n"])
def test_a_cursor_is_one_word_of_one_line(cli: Cli, server: PlayedServer, cursor: str) -> None:
    server.routes["GET", REQUESTS] = following(["a"], cursor)
    told = cli.run("requests", "--limit", "1").err
    assert len(told.splitlines()) == 1
    assert "\x1b" not in told
    assert shlex.split(told)[:-1] == ["There", "are", "more:", "--cursor"]


@pytest.mark.parametrize(
    ("by", "row"), [("day", {"day": "2026-11-30"}), ("key", {"key_id": "key_1"}), ("model", {"model": "b3os/m"})]
)
def test_usage_is_grouped_as_asked(cli: Cli, server: PlayedServer, by: str, row: dict[str, str]) -> None:
    counts = {"requests": 2, "input_tokens": 30, "output_tokens": 50, "cached_tokens": 0, "image_bytes": 7}
    costs = {**counts, "cost_nano_usd": 2_000_000_000}
    answer = {"data": [{**row, **costs}], "total": costs, "future": True}
    server.routes["GET", USAGE_PATH] = as_json(answer)
    ran = cli.run("usage", "--by", by, "--from", "2026-11-01", "--to", "2026-11-30")
    assert ran.out.splitlines()[1].split() == [*row.values(), "2", "30", "50", "0", "7", "$2.00"]
    assert server.seen[-1].query == {"by": [by], "from": ["2026-11-01"], "to": ["2026-11-30"]}
    assert cli.run("usage", "--by", by, "--json").json == answer
    assert server.seen[-1].query == {"by": [by]}


def test_usage_of_more_than_one_has_a_total(cli: Cli, server: PlayedServer) -> None:
    rows = [{"day": f"2026-11-0{day}", "requests": day, "cost_nano_usd": 0} for day in (1, 2)]
    server.routes["GET", USAGE_PATH] = as_json({"data": rows, "total": {"requests": 3, "cost_nano_usd": 0}})
    lines = [line.split()[:2] for line in cli.run("usage").out.splitlines()[1:]]
    assert lines == [["2026-11-01", "1"], ["2026-11-02", "2"], ["TOTAL", "3"]]


@pytest.mark.parametrize("arguments", [["--by", "week"], ["--from", "yesterday"], ["--to", "2026-02-30"]])
def test_a_wrong_day_or_group_asks_nobody(cli: Cli, server: PlayedServer, arguments: list[str]) -> None:
    assert cli.run("usage", *arguments).code == USAGE
    assert server.seen == []


COMMANDS = {
    ("keys", "list"): KEYS,
    ("models",): MODELS,
    ("requests",): REQUESTS,
    ("requests", "req_1"): f"{REQUESTS}/req_1",
    ("usage",): USAGE_PATH,
    ("whoami",): "/v1/auth/session",
}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "document",
    [
        {},
        {"data": None},
        {"data": {"a": 1}},
        {"data": [None, 1, "x", [], {}]},
        {"data": [{"id": {}, "scopes": 5, "spend_cap": [], "cost_nano_usd": "x", "usage": [], "day": []}]},
        {"data": [dict.fromkeys(("id", "name", "model", "day", "status", "hint", "outcome"), HOSTILE)]},
        {HOSTILE: HOSTILE, "id": HOSTILE},
    ],
)
def test_documents_of_any_shape_are_shown_and_move_nothing(
    cli: Cli, server: PlayedServer, command: tuple[str, ...], document: Any
) -> None:
    server.routes["GET", COMMANDS[command]] = as_json(document)
    ran = cli.run(*command)
    assert (ran.code, ran.err) == (0, "")
    assert not {"\x1b", "\u202e"} & set(ran.out)
    as_document = cli.run(*command, "--json")
    assert "\x1b" not in as_document.out
    if command != ("requests",):
        assert as_document.json == document
