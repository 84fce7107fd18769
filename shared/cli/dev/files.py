"""The state folder's rim: atomic private files, the lock, free ports and free space.

Must not know what the files mean.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from shared.cli.dev.errors import DevError

LEAST_FREE_MIB = 64
_LEFTOVERS_END_WITHIN_S = 10.0


def open_log(path: Path) -> BinaryIO:
    """A log to append to, for its owner's eyes only."""
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    return path.open("ab")


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step, mode 0600: a reader sees the old or the new one, whole.

    Raises:
        OSError: the disk is full or the folder can't be written; the old file is as it was.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(home: Path) -> Iterator[int]:
    """Hold the state folder alone; gives the lock's descriptor, whose heirs hold it on.

    A lock whose maker is dead is held by children that are about to end, so it is waited for.

    Raises:
        DevError: another `b3os dev` has it.
    """
    fd = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline_s = time.monotonic() + _LEFTOVERS_END_WITHIN_S
        while not _try_lock(fd):
            owner = os.pread(fd, 20, 0).decode(errors="replace").strip()
            if _is_alive(owner) or time.monotonic() > deadline_s:
                whose = f"another b3os dev (process {owner or 'unknown'})"
                raise DevError(f"{whose} runs on {home}; stop it or choose another --home")
            time.sleep(0.1)
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield fd
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def check_ports(host: str, ports: Mapping[int, str]) -> None:
    """Raises DevError for the first port that can't be bound; the mapping says who needs it."""
    for port, need in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise DevError(f"port {port} can't be used ({error.strerror}): {need}") from None


def check_space(home: Path) -> None:
    """Raises DevError where the disk is as good as full: Redis and the logs would fail in worse places."""
    free_mib = shutil.disk_usage(home).free // 2**20
    if free_mib < LEAST_FREE_MIB:
        raise DevError(f"the disk of {home} is full: {free_mib} MiB are free and {LEAST_FREE_MIB} MiB are needed")
