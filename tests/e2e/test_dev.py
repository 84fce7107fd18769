"""`b3os dev`: what it writes, what it says, and that nothing of it stays behind, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.e2e.stack import DevCommand, DevStack, running_dev, stop
from tests.e2e.unheard import open_url

ORPHANS_END_WITHIN_S = 10.0
WITHIN_S = 60.0
"""For what comes about at once: generous, since it is waited for only where something is broken."""


@pytest.fixture
def command(tmp_path: Path) -> DevCommand:
    return DevCommand(tmp_path / "home")


@pytest.fixture
def process(command: DevCommand) -> Iterator[subprocess.Popen[str]]:
    process = command.start()
    command.wait_until_ready(process)
    yield process
    if process.poll() is None:
        stop(process)
    process.communicate()


def family(home: Path) -> list[psutil.Process]:
    """All living processes whose environment or command line names the state folder, whoever their parent is now."""
    found = []
    for process in psutil.process_iter():
        try:
            named = [process.environ().get("B3OS_HOME", ""), *process.cmdline()]
            if process.status() != psutil.STATUS_ZOMBIE and any(str(home) in text for text in named):
                found.append(process)
        except psutil.Error:
            continue
    return found


def group(pid: int) -> list[int]:
    """The children of `b3os dev`, and theirs: all of its guardian's group."""
    (leader,) = {group_of(child.pid) for child in psutil.Process(pid).children()} - {None}
    return [pid for pid in psutil.pids() if group_of(pid) == leader]


def group_of(pid: int) -> int | None:
    """None where it has ended meanwhile: there are others on this machine, who come and go."""
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_living(pid)]


def is_living(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def child(home: Path, *words: str) -> psutil.Process:
    """The one with these words; for a moment a process that it starts has them, too."""
    deadline_s = time.monotonic() + WITHIN_S
    while len(found := [process for process in family(home) if is_called(process, *words)]) != 1:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.02)
    return found[0]


def is_called(process: psutil.Process, *words: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return set(words) <= set(process.cmdline())
    return False


def sentence(command: DevCommand, **environ: str) -> str:
    """What a start that fails says."""
    process = command.start(environ={**os.environ, **environ})
    try:
        said, _ = process.communicate(timeout=60)
    finally:
        stop(process, signal.SIGKILL)
    assert process.returncode == 1, said
    assert "Traceback" not in said
    return said.splitlines()[-1]


def test_dev_json_is_private_and_the_key_in_it_works(dev_scripted: DevStack) -> None:
    file = dev_scripted.home / "dev.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    facts = json.loads(file.read_text())
    assert facts["model"] == "b3os/scripted"
    assert facts["base_url"] == facts["edge_url"] + "/v1/infer"
    request = urllib.request.Request(
        facts["base_url"] + "/models", headers={"Authorization": f"Bearer {facts['api_key']}"}
    )
    with open_url(request) as response:
        assert [model["id"] for model in json.load(response)["data"]] == ["b3os/scripted"]


def test_each_side_has_a_user_of_its_own_in_redis(dev_scripted: DevStack) -> None:
    urls = {name: child(dev_scripted.home, "-m", name).environ()["B3OS_REDIS_URL"] for name in ("edge", "node")}
    assert urls["edge"] == dev_scripted.redis_url
    assert {name: urlsplit(url).username for name, url in urls.items()} == {"edge": "edge", "node": "node"}
    assert urlsplit(urls["edge"]).password != urlsplit(urls["node"]).password


def test_secrets_in_the_home_are_private(dev_scripted: DevStack) -> None:
    for name in ("redis/users.acl", "redis/edge.password", "redis/node.password", "keys/edge-private.pem"):
        assert stat.S_IMODE((dev_scripted.home / name).stat().st_mode) == 0o600, name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_child(
    command: DevCommand, process: subprocess.Popen[str], number: signal.Signals
) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while len(pids := group(process.pid)) != 5:  # guardian, Redis, edge, node, and what decodes its images
        assert time.monotonic() < deadline_s, pids
        time.sleep(0.05)
    stop(process, number)
    assert process.returncode == 0
    assert living(pids) == []
    assert family(command.home) == []


def test_kill_9_leaves_no_child_after_ten_seconds(command: DevCommand, process: subprocess.Popen[str]) -> None:
    pids = group(process.pid)
    process.kill()
    deadline_s = time.monotonic() + ORPHANS_END_WITHIN_S
    while living(pids) or family(command.home):
        assert time.monotonic() < deadline_s, family(command.home)
        time.sleep(0.1)


def test_kill_9_of_the_parent_ends_a_run_that_was_to_end_with_it(command: DevCommand) -> None:
    code = f"import subprocess; subprocess.run({[*command.arguments(), '--with-parent']!r})"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    command.wait_until_ready(parent)
    parent.kill()
    deadline_s = time.monotonic() + ORPHANS_END_WITHIN_S
    while family(command.home):
        assert time.monotonic() < deadline_s, family(command.home)
        time.sleep(0.1)
    parent.communicate()


def test_what_a_dead_node_left_behind_is_ended_too(command: DevCommand, process: subprocess.Popen[str]) -> None:
    node = child(command.home, "-m", "node")
    orphan = f"import os, sys, time; os.setpgid(0, {os.getpgid(node.pid)}); print(1, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", orphan], stdout=subprocess.PIPE) as left_behind:
        assert left_behind.stdout is not None
        left_behind.stdout.readline()
        node.kill()
        said, _ = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 1
        assert said.splitlines()[-1].startswith("b3os dev: the node was killed by SIGKILL")
        assert left_behind.wait(WITHIN_S) == -signal.SIGKILL
    assert family(command.home) == []


def test_a_dead_guardian_stops_everything(command: DevCommand, process: subprocess.Popen[str]) -> None:
    (guardian,) = (
        one for one in psutil.Process(process.pid).children() if any("guardian" in word for word in one.cmdline())
    )
    guardian.kill()
    said, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    assert "guardian" in said.splitlines()[-1]
    assert family(command.home) == []


def test_a_second_signal_kills_at_once(command: DevCommand, process: subprocess.Popen[str]) -> None:
    for side in ("edge", "node"):
        child(command.home, "-m", side).suspend()  # they would take their whole deadlines, 25 s together
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while not process.stdout.readline().startswith("stopping; once more"):
        assert process.poll() is None
    begun_s = time.monotonic()
    stop(process, signal.SIGINT)
    assert time.monotonic() - begun_s < 15
    assert family(command.home) == []


def test_a_taken_port_is_one_sentence_and_starts_nothing(command: DevCommand) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", command.ports[1] + 1))
        taken.listen()
        said = sentence(command)
    port = command.ports[1] + 1
    reason = "Address already in use"
    assert said == f"b3os dev: port {port} can't be used ({reason}): the node needs it; --node-port chooses another"
    assert not (command.home / "redis").exists()
    assert family(command.home) == []


def test_a_missing_model_is_one_sentence(command: DevCommand, tmp_path: Path) -> None:
    command.engine = "vllm"
    missing = str(tmp_path / "no-model")
    said = sentence(command, B3OS_MODEL=missing)
    assert missing in said
    assert family(command.home) == []


def test_a_full_disk_is_one_sentence(command: DevCommand) -> None:
    code = (
        "import shutil, sys; from collections import namedtuple; from shared.cli import main;"
        "shutil.disk_usage = lambda path: namedtuple('Usage', 'total used free')(1, 1, 0);"
        f"sys.argv = ['b3os', *{command.arguments()[3:]!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == f"b3os dev: the disk of {command.home} is full: 0 MiB are free and 64 MiB are needed\n"
    assert family(command.home) == []


def test_wrong_settings_of_a_child_are_told_in_its_own_words(command: DevCommand) -> None:
    said = sentence(command, B3OS_NODE_PROT="1")
    assert "B3OS_NODE_PROT: no such setting; did you mean B3OS_NODE_PORT?" in said
    assert str(command.home / "logs" / "node.log") in said
    assert family(command.home) == []


def test_a_second_start_on_the_same_home_is_refused(dev_scripted: DevStack) -> None:
    said = sentence(DevCommand(dev_scripted.home))
    assert said.startswith(f"b3os dev: another b3os dev (process {dev_scripted.pid}) runs on {dev_scripted.home}")


def test_a_restart_reuses_the_key_unless_it_is_refused(command: DevCommand) -> None:
    with running_dev(command) as first:
        pass
    with running_dev(command) as second:
        assert (second.api_key, second.redis_url) == (first.api_key, first.redis_url)
    file = command.home / "dev.json"
    file.write_text(file.read_text().replace(first.api_key, "b3os_sk_nonsense"))
    with running_dev(command) as third:
        assert third.api_key not in (first.api_key, "b3os_sk_nonsense")


def test_a_start_right_after_kill_9_waits_for_the_leftovers(
    command: DevCommand, process: subprocess.Popen[str]
) -> None:
    stop(process, signal.SIGKILL)
    with running_dev(command) as stack:
        assert stack.model == "b3os/scripted"
