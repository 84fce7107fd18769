"""docker-compose.yml and the Dockerfiles against the settings and files that they name. No engine runs them here."""

from __future__ import annotations

import fnmatch
import json
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from edge.admin.cli import admin
from edge.settings import EdgeSection, EdgeSettings
from edge.signing import load_signing_key
from node.gate import load_edge_keys
from node.settings import NodeSection, NodeSettings
from shared.redis_acl import EDGE, NODE, render_acl
from shared.settings import load_settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
PORTS = {"edge": EdgeSection.model_fields, "node": NodeSection.model_fields}


def port_of(side: str, field: str = "port") -> int:
    return int(PORTS[side][field].get_default())


def side_of(service: str) -> str:
    return "edge" if service == "edge" else "node"


def test_there_is_redis_an_edge_and_a_node_of_each_kind() -> None:
    assert set(SERVICES) == {"redis", "edge", "node", "node-cpu"}
    assert (SERVICES["node"]["profiles"], SERVICES["node-cpu"]["profiles"]) == (["gpu"], ["cpu"])
    assert SERVICES["node"]["build"]["args"] == {"EXTRA": "gpu"}
    assert SERVICES["node-cpu"]["build"]["args"] == {"EXTRA": "cpu"}
    [device] = SERVICES["node"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


@pytest.mark.parametrize("service", SERVICES)
def test_every_container_is_hardened(service: str) -> None:
    spec = SERVICES[service]
    assert spec["read_only"] is True
    assert spec["cap_drop"] == ["ALL"]
    assert spec["security_opt"] == ["no-new-privileges:true"]
    assert spec["init"] is True
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", spec["user"])
    assert "privileged" not in spec
    assert spec["healthcheck"]["test"]
    assert [path for path in spec["tmpfs"] if path.startswith("/tmp")]
    assert "cap_add" not in spec
    assert "docker.sock" not in json.dumps(spec)


@pytest.mark.parametrize("service", OURS)
def test_every_variable_is_a_setting_and_the_whole_is_one_that_starts(service: str) -> None:
    variables = {name: str(value) for name, value in SERVICES[service]["environment"].items()}
    assert all(name.startswith("B3OS_") for name in variables)
    kind = EdgeSettings if service == "edge" else NodeSettings
    load_settings(kind, variables, {})  # a variable that is no setting is a fault
    for name, value in variables.items():
        if value.startswith("/run/secrets/"):
            assert value.removeprefix("/run/secrets/") in SERVICES[service]["secrets"], name


@pytest.mark.parametrize("service", OURS)
def test_ports_are_the_settings_defaults(service: str) -> None:
    side = side_of(service)
    operator = port_of(side, "operator_port")
    assert f"http://127.0.0.1:{operator}/" in SERVICES[service]["healthcheck"]["test"][3]
    text = (ROOT / side / "Dockerfile").read_text()
    assert re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE) == [f"{port_of(side)} {operator}"]


def test_only_the_edge_is_reached_from_outside_and_from_this_machine_alone() -> None:
    assert SERVICES["edge"]["ports"] == [f"127.0.0.1:{port_of('edge')}:{port_of('edge')}"]
    assert not [name for name in SERVICES if name != "edge" and "ports" in SERVICES[name]]
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert SERVICES["redis"]["networks"] == ["inside"]


def test_the_edge_finds_either_node_under_one_name() -> None:
    nodes = json.loads(SERVICES["edge"]["environment"]["B3OS_EDGE_NODES"])
    for service in ("node", "node-cpu"):
        [alias] = SERVICES[service]["networks"]["inside"]["aliases"]
        told = SERVICES[service]["environment"]
        assert nodes == {told["B3OS_NODE_ID"]: told["B3OS_NODE_URL"]} == {"n1": f"http://{alias}:{port_of('node')}"}


@pytest.mark.parametrize("service", OURS)
def test_a_container_is_stopped_no_sooner_than_its_process_has_drained(service: str) -> None:
    grace_s = int(SERVICES[service]["stop_grace_period"].removesuffix("s"))
    assert grace_s > PORTS[side_of(service)]["drain_s"].get_default() + 10


def test_redis_is_run_as_the_documents_demand() -> None:
    command = SERVICES["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options == {
        "--aclfile": "/run/secrets/redis.acl",
        "--appendonly": "yes",
        "--appendfsync": "always",
        "--maxmemory-policy": "noeviction",
        "--save": "",
    }


@pytest.mark.parametrize("side", ["edge", "node"])
def test_a_dockerfile_copies_what_there_is_and_what_the_builder_is_given(side: str) -> None:
    text = (ROOT / side / "Dockerfile").read_text()
    copied = [path for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for path in line.split()[:-1]]
    assert {"pyproject.toml", "constraints.txt", "edge", "node", "shared", "docs/openapi.yaml"} <= set(copied)
    for path in copied:
        assert (ROOT / path).exists(), path
        assert is_given(path), path
    assert not is_given("secrets/redis.acl")
    assert not is_given(".b3os/keys/edge-private.pem")
    assert not is_given("tests/conftest.py")


def is_given(path: str) -> bool:
    """By .dockerignore: the last pattern that fits counts, and what fits a folder fits all in it."""
    given = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            parts = path.split("/")
            above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
            if any(fnmatch.fnmatch(each, pattern) and each.count("/") == pattern.count("/") for each in above):
                given = line.startswith("!")
    return given


@pytest.mark.parametrize("side", ["edge", "node"])
def test_an_image_is_pinned_small_and_nobody_s_but_its_user_s(side: str) -> None:
    build, final = (ROOT / side / "Dockerfile").read_text().split("\nFROM ")[-2:]
    assert "constraints.txt" in build
    assert re.search(r"pip install .*-c constraints\.txt", build)
    version = re.match(r"python:(3\.\d+)-slim", final)
    assert version is not None
    assert (3, 11) <= tuple(map(int, version[1].split("."))) < (3, 15)
    assert "pip install" not in final
    [user] = re.findall(r"^USER (\d+)$", final, re.MULTILINE)
    assert f"useradd --uid {user} " in final
    assert {SERVICES[name]["user"] for name in OURS if side_of(name) == side} == {f"{user}:{user}"}
    [command] = re.findall(r"^CMD (.*)$", final, re.MULTILINE)
    assert json.loads(command) == ["b3os", side]


def test_an_image_of_others_is_pinned() -> None:
    assert re.fullmatch(r"redis:\d+\.\d+\.\d+-\w+", SERVICES["redis"]["image"])


def test_the_extras_that_images_install_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for service in OURS:
        side = side_of(service)
        [wanted] = re.findall(r"\.\[(.*?)\]", (ROOT / side / "Dockerfile").read_text())
        named = wanted.replace("$EXTRA", SERVICES[service]["build"].get("args", {}).get("EXTRA", ""))
        assert set(named.split(",")) <= set(extras)


def test_what_is_a_secret_is_ignored_by_git() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    files = [spec["file"] for spec in COMPOSE["secrets"].values()]
    files += [file for service in SERVICES.values() for file in service.get("env_file", [])]
    assert len(files) == 6
    assert all(f"{Path(file).parent}/" in ignored for file in files)


def make_secrets(folder: Path) -> None:
    done = CliRunner().invoke(admin, ["compose-secrets", str(folder)])
    assert done.exit_code == 0, done.output


def test_the_secrets_are_those_that_compose_mounts_and_fit_together(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder)
    named = {Path(spec["file"]).name for spec in COMPOSE["secrets"].values()}
    named |= {Path(file).name for service in SERVICES.values() for file in service.get("env_file", [])}
    assert {path.name for path in folder.iterdir()} == named | {"operator.password"}
    passwords = {}
    for side in ("edge", "node"):
        variables = dict(line.split("=", 1) for line in (folder / f"{side}.env").read_text().splitlines())
        found = re.fullmatch(rf"redis://{side}:(\w{{48}})@redis:6379/0", variables.pop("B3OS_REDIS_URL"))
        assert found is not None
        assert variables == {}
        passwords[side] = [found[1]]
    operator = (folder / "operator.password").read_text().split()
    acl = (folder / "redis.acl").read_text()
    assert acl == render_acl({EDGE: passwords["edge"], NODE: passwords["node"]}, operator)
    assert load_signing_key(folder / "edge-private.pem").kid in load_edge_keys(folder / "edge-public.json")


def test_others_can_t_enter_the_folder_and_containers_can_read_what_is_mounted(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    mounted = {Path(spec["file"]).name for spec in COMPOSE["secrets"].values()}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {name: 0o644 if name in mounted else 0o600 for name in modes}


def test_secrets_that_are_there_are_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = CliRunner().invoke(admin, ["compose-secrets", str(folder)])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
