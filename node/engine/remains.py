"""What killed processes leave in shared memory: semaphores and segments, until the last process of the node ends.

Decides what may be removed: files that they had mapped and nobody here has. Linux only; elsewhere there is nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux keeps it
_SEMAPHORE = "sem."
_SEGMENT = "psm_"


def shared_memory_of(processes: Iterable[BaseProcess]) -> set[Path]:
    """The files of shared memory that these processes and their children have mapped."""
    inodes: set[int] = set()
    for process in processes:
        if process.is_alive():
            with contextlib.suppress(psutil.Error):
                parent = psutil.Process(process.pid)
                for each in (parent, *parent.children(recursive=True)):
                    inodes |= _mapped_by(str(each.pid))
    return _files_of(inodes)


def remove_remains(files: set[Path]) -> None:
    """Remove those that are there still, unless this process uses them."""
    for file in files - _files_of(_mapped_by("self")):
        try:
            file.unlink()
        except OSError:  # its maker ended well
            continue
        # One tracker serves all processes that a node spawns; it would complain at the end.
        if file.name.startswith(_SEMAPHORE):
            resource_tracker.unregister("/" + file.name.removeprefix(_SEMAPHORE), "semaphore")
        elif file.name.startswith(_SEGMENT):
            resource_tracker.unregister("/" + file.name, "shared_memory")


def _mapped_by(process: str) -> set[int]:
    """Inodes: a semaphore is mapped under a name that it has no more."""
    try:
        lines = Path("/proc", process, "maps").read_text().splitlines()
    except OSError:
        return set()
    return {int(line.split(maxsplit=5)[4]) for line in lines if f" {SHARED_MEMORY}/" in line}


def _files_of(inodes: set[int]) -> set[Path]:
    try:
        return {file for file in SHARED_MEMORY.iterdir() if file.stat().st_ino in inodes}
    except OSError:  # one of them has just gone, or it isn't Linux
        return set()
