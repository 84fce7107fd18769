"""A spawned process does not outlive the one that spawned it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path

from node.engine.orphan import die_with_parent

PARENT = """
import multiprocessing, os, sys, time
from tests.unit.node.test_orphan import wait_for_parent

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=wait_for_parent)
    child.start()
    time.sleep(600)
"""


def wait_for_parent() -> None:
    """Runs in the child; its standard output closes when it ends."""
    die_with_parent()
    print("waiting", flush=True)
    threading.Event().wait(600)


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environment, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "waiting\n"
        parent.kill()
        parent.communicate(timeout=60)  # the end of the file: parent and child are both gone


def test_a_process_that_nobody_spawned_starts_no_watch() -> None:
    before = threading.active_count()
    die_with_parent()
    assert threading.active_count() == before


def test_vllm_is_told_to_call_it_in_its_processes() -> None:
    names = [point.value for point in entry_points(group="vllm.general_plugins")]
    assert "node.engine.orphan:die_with_parent" in names
