"""A spool belongs to one process at a time: a lock that is held for as long as the process lives.

Decides who may have the folder. Must not know bills. Two owners would book no bill twice, but each would clear away
what the other is writing, and two nodes of one id are one node to edges.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from node.limits.spool import Spool

_LOCK = ".lock"
"""Behind the folder's name: beside it, so that an empty folder still means that no bill waits."""


class BadSpool(Exception):
    """The folder can't be used; the message is one sentence for an operator."""


@contextlib.contextmanager
def owned_spool(folder: Path) -> Iterator[Spool]:
    """The spool, alone.

    The lock is of the process (`lockf`) and no `flock`, which forks inherit: after kill -9 an orphan of the engine's
    would hold that for a moment more, and the next process would find the folder taken.

    Raises:
        BadSpool: another process has it, or it can't be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(folder.with_name(folder.name + _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadSpool(f"the spool {folder} can't be used: {error.strerror}") from None
    try:
        _lock(fd, folder)
        yield Spool(folder)
    finally:
        os.close(fd)


def _lock(fd: int, folder: Path) -> None:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # which of both is the system's choice
        raise BadSpool(
            f"another process has the spool {folder}: each node needs a B3OS_NODE_ID of its own, or another B3OS_HOME"
        ) from None
    except OSError as error:
        raise BadSpool(f"the spool {folder} can't be locked: {error.strerror}") from None
