"""A spool has one owner at a time, told between real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge.signing import create_key_files
from node.limits.spool_owner import BadSpool, owned_spool

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that has a spool, and a fork of it that outlives it."""

    process: subprocess.Popen[str]
    fork: int
    folder: Path


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    folder = tmp_path / "spool" / "n7"
    command = [sys.executable, "-m", "tests.integration.limits.spool_owner", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        try:
            yield Owner(process, fork, folder)
        finally:
            process.kill()
            os.kill(fork, signal.SIGKILL)


def test_a_second_process_is_told_what_to_change_and_touches_nothing(owner: Owner) -> None:
    (owner.folder / "req_1-0.partial").write_text("the owner writes it just now")
    with pytest.raises(BadSpool, match=r"has the spool .*B3OS_NODE_ID") as raised, owned_spool(owner.folder):
        pass
    assert "\n" not in str(raised.value)
    assert (owner.folder / "req_1-0.partial").exists()


def test_a_killed_owner_frees_it_though_a_fork_of_it_lives(owner: Owner) -> None:
    owner.process.kill()
    owner.process.wait()
    os.kill(owner.fork, 0)  # else this shows nothing
    with owned_spool(owner.folder) as spool:
        assert spool.names() == []


def test_a_node_with_the_id_of_another_does_not_start(owner: Owner) -> None:
    home = owner.folder.parents[1]
    create_key_files(home / "private.pem", home / "public.json")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("B3OS_")}
    environ = ours | {
        "B3OS_HOME": str(home),
        "B3OS_NODE_ID": owner.folder.name,
        "B3OS_NODE_EDGE_KEYS_FILE": str(home / "public.json"),
        "B3OS_NODE_ENGINE": "scripted",
        "PYTHONPATH": str(ROOT),
    }
    ran = subprocess.run([sys.executable, "-m", "node"], env=environ, cwd=home, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.startswith(
        f"b3os node: another process has the spool {owner.folder}: each node needs a B3OS_NODE_ID"
    )
    assert ran.stderr.count("\n") == 1


def test_an_owner_that_ends_frees_it(tmp_path: Path) -> None:
    for _ in range(2):
        with owned_spool(tmp_path / "spool") as spool:
            assert spool.names() == []


def test_a_folder_that_can_not_be_made_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = r"^the spool .*/file/spool can't be used: Not a directory$"
    with pytest.raises(BadSpool, match=told), owned_spool(tmp_path / "file" / "spool"):
        pass
