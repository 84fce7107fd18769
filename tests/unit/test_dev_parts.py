"""The pure parts of `b3os dev`: the plan, Redis's configuration, reasons of the dead, and what is printed."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edge.settings import EdgeSettings
from node.settings import NodeSettings
from shared.cli.dev.errors import parse_reason
from shared.cli.dev.files import write_private
from shared.cli.dev.plan import Plan, environment_of
from shared.cli.dev.redis_server import parse_version, prepare_redis, render_config
from shared.cli.dev.snippets import Facts, render_claude_code, render_curl, render_python, render_welcome
from shared.settings import load_settings

PLAN = Plan("scripted", None, Path("/state"), 7700, 7710, 7720)
FACTS = Facts(
    base_url="http://127.0.0.1:7700/v1/infer",
    api_key="b3os_sk_secret",
    model="b3os/smollm2-135m",
    edge_url="http://127.0.0.1:7700",
    node_url="http://127.0.0.1:7710",
    redis_url="redis://:pw@127.0.0.1:7720/0",
    edge_operator_url="http://127.0.0.1:7701",
    node_operator_url="http://127.0.0.1:7711",
)


def test_a_plan_names_every_port_with_its_option() -> None:
    assert sorted(PLAN.ports()) == [7700, 7701, 7710, 7711, 7720]
    assert "--redis-port" in PLAN.ports()[7720]


def test_ports_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="port 7701 is asked for twice"):
        Plan("scripted", None, Path("/state"), 7700, 7701, 7720).ports()


def test_children_are_told_the_model_only_if_one_was_named() -> None:
    assert "B3OS_MODEL" not in environment_of(PLAN, "redis://x")
    named = Plan("vllm", "org/model", Path("/state"), 7700, 7710, 7720)
    assert environment_of(named, "redis://x")["B3OS_MODEL"] == "org/model"


def test_the_edge_finds_the_node_by_what_it_tells_in_redis() -> None:
    variables = environment_of(PLAN, "redis://x")
    assert load_settings(EdgeSettings, variables, {}).edge.nodes == {}
    assert load_settings(NodeSettings, variables, {}).node.told_url() == "http://127.0.0.1:7710"


def test_redis_keeps_every_acknowledged_write_and_evicts_nothing() -> None:
    lines = render_config(Path("/state/redis"), 7720).splitlines()
    wanted = {"appendonly yes", "appendfsync always", "maxmemory-policy noeviction", "bind 127.0.0.1"}
    assert wanted | {"protected-mode yes", 'aclfile "/state/redis/users.acl"', "port 7720"} <= set(lines)


def test_a_folder_with_spaces_and_quotes_survives_the_configuration() -> None:
    lines = render_config(Path('/my "state"'), 1).splitlines()
    assert r'dir "/my \"state\""' in lines


def test_redis_s_passwords_are_private_and_kept_and_one_for_each_side(tmp_path: Path) -> None:
    first, second = prepare_redis(tmp_path, 1), prepare_redis(tmp_path, 1)
    assert first == second
    assert urlsplit(first.edge_url).username == "edge"
    assert urlsplit(first.node_url).username == "node"
    assert urlsplit(first.edge_url).password != urlsplit(first.node_url).password
    names = ["edge.password", "node.password", "redis.conf", "users.acl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names} == {0o600}


@pytest.mark.parametrize(
    ("text", "version"),
    [("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc", (7, 0)), ("Valkey 8", None), ("", None)],
)
def test_a_version_is_read_or_none(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", None),
        ('{"message": "one"}\n{"message": "two"}\n', "two"),
        ('plain words\n{"message": "later"}\n', "plain words"),
        ("Traceback\n  line\nValueError: no\n", "ValueError: no"),
        (
            "noise\nb3os node: the settings are wrong:\nnode.port: bad\nnode.id: bad\n",
            "b3os node: the settings are wrong: node.port: bad; node.id: bad",
        ),
        ("Error: no such key\n", "no such key"),
        ("12:M 30 Nov 2026 07:03:28.669 # Fatal: can't open the file\n", "Fatal: can't open the file"),
    ],
)
def test_the_reason_of_a_death_is_what_the_process_said_last(log: str, reason: str | None) -> None:
    assert parse_reason(log) == reason


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_curl_sends_a_whole_message_with_the_key() -> None:
    words = [word for word in shlex.split(render_curl(FACTS)) if word != "\n"]
    assert words[1] == "http://127.0.0.1:7700/v1/infer/v1/messages"
    assert "Authorization: Bearer b3os_sk_secret" in words
    assert json.loads(words[-1])["model"] == "b3os/smollm2-135m"


def test_the_python_snippet_is_python() -> None:
    shell, _, rest = render_python(FACTS, "/a b/python").partition("\n")
    assert shell == "'/a b/python' - <<'END'"
    compile(rest.removesuffix("END"), "snippet", "exec")


def test_claude_code_gets_the_model_for_each_of_its_sizes_and_one_line_to_run() -> None:
    lines = render_claude_code(FACTS).splitlines()
    assert lines[-1] == "claude"
    assert {line.partition("=")[0] for line in lines[:-1]} == {
        "export ANTHROPIC_BASE_URL",
        "export ANTHROPIC_AUTH_TOKEN",
        "export ANTHROPIC_MODEL",
        "export ANTHROPIC_DEFAULT_OPUS_MODEL",
        "export ANTHROPIC_DEFAULT_SONNET_MODEL",
        "export ANTHROPIC_DEFAULT_HAIKU_MODEL",
    }


def test_the_welcome_holds_all_three_and_not_redis_s_password() -> None:
    text = render_welcome(FACTS, "python")
    assert all(part in text for part in ("curl ", "from anthropic", "ANTHROPIC_BASE_URL"))
    assert FACTS.redis_url not in text
