"""What a killed process leaves in shared memory is removed; what anybody here uses is not."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from node.engine.remains import remove_remains, shared_memory_of

SPAWN: SpawnContext = multiprocessing.get_context("spawn")


def hold(pipe: Connection) -> None:
    """In a process that is to be killed: a semaphore and a segment."""
    lock, segment = SPAWN.RLock(), SharedMemory(create=True, size=64)
    pipe.send(segment.name)
    pipe.recv()
    del lock


@pytest.fixture
def holder() -> Iterator[SpawnProcess]:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=hold, args=(theirs,))
    process.start()
    ours.recv()
    yield process
    process.kill()
    process.join()
    ours.close()
    theirs.close()
    process.close()


def kinds(files: set[Path]) -> list[str]:
    return sorted(file.name[:4] for file in files)


def test_what_a_killed_process_had_is_removed(holder: SpawnProcess) -> None:
    files = shared_memory_of([holder])
    assert kinds(files) == ["psm_", "sem."]
    holder.kill()
    holder.join()
    assert all(file.exists() for file in files)
    remove_remains(files)
    assert not any(file.exists() for file in files)
    remove_remains(files)  # once more does no harm


def test_what_this_process_uses_stays(holder: SpawnProcess) -> None:
    files = shared_memory_of([holder])
    (name,) = (file.name for file in files if file.name.startswith("psm_"))
    segment = SharedMemory(name)
    try:
        remove_remains(files)
        assert kinds({file for file in files if file.exists()}) == ["psm_"]
    finally:
        segment.close()
        segment.unlink()


def test_a_process_that_is_gone_has_nothing(holder: SpawnProcess) -> None:
    files = shared_memory_of([holder])
    holder.kill()
    holder.join()
    assert shared_memory_of([holder]) == set()
    remove_remains(files)
