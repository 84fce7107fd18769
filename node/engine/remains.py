"""What killed processes leave in shared memory: semaphores and segments, until the last process of the node ends.

Decides what may be removed: files that they had mapped and nobody here has. Linux only; elsewhere there is nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux keeps it
_SEMAPHORE = "sem."


def shared_memory_of(processes: Iterable[BaseProcess]) -> set[Path]:
    """The files of shared memory that these processes and their children have mapped."""
    found: set[Path] = set()
    for process in processes:
        if process.is_alive():
            with contextlib.suppress(psutil.Error):
                parent = psutil.Process(process.pid)
                for each in (parent, *parent.children(recursive=True)):
                    found |= _mapped_by(str(each.pid))
    return found


def remove_remains(files: Iterable[Path]) -> None:
    """Remove those that are there still, unless this process uses them."""
    for file in set(files) - _mapped_by("self"):
        try:
            file.unlink()
        except OSError:  # its maker ended well
            continue
        # One tracker serves all processes that a node spawns; it would complain at the end.
        if file.name.startswith(_SEMAPHORE):
            resource_tracker.unregister("/" + file.name.removeprefix(_SEMAPHORE), "semaphore")
        elif file.name.startswith("psm_"):
            resource_tracker.unregister("/" + file.name, "shared_memory")


def _mapped_by(process: str) -> set[Path]:
    try:
        lines = Path("/proc", process, "maps").read_text().splitlines()
    except OSError:
        return set()
    prefix = f"{SHARED_MEMORY}{os.sep}"
    paths = {line.split(maxsplit=5)[5] for line in lines if prefix in line}
    return {Path(path) for path in paths if path.startswith(prefix) and not path.endswith(" (deleted)")}
