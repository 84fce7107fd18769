"""The engine core's death is noticed and told, and the core never outlives its node."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from node.catalog.served import ServedModel

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def facts(smollm2: ServedModel) -> Iterator[Facts]:
    """What a process with a dying engine tells; it still runs."""
    del smollm2  # only that it is ready
    command = [sys.executable, "-m", "tests.integration.dying_engine"]
    told: Facts = {}
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                told |= json.loads(line)
                if "cores" in told:
                    break
            yield told | {"process": process}
        finally:
            process.kill()


def test_an_answer_that_its_engine_left_is_told_to_come_back(facts: Facts) -> None:
    assert facts["code"] == "infer_backend_unavailable"
    assert facts["message"] == f"The model runtime is restarting; retry in {facts['retry_after_s']} seconds"


def test_a_start_that_hangs_can_be_ended(facts: Facts) -> None:
    assert facts["was_cancelled"]
    assert facts["cores_after_cancel"] == []


def test_the_death_is_noticed(facts: Facts) -> None:
    assert facts["cause"]


def test_a_dead_engine_refuses_at_once(facts: Facts) -> None:
    assert facts["code_when_dead"] == "infer_backend_unavailable"


def test_another_engine_can_be_started_in_the_same_process(facts: Facts) -> None:
    assert "Paris" in facts["text"]


def test_the_core_dies_with_a_killed_node(facts: Facts) -> None:
    (core,) = facts["cores"]
    facts["process"].kill()
    deadline = time.monotonic() + 60
    while is_alive(core):
        assert time.monotonic() < deadline, "the engine core outlived its node: is b3os installed with its plugins?"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
