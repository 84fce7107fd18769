"""Calls of the kernel that Python isn't always built with: some builds are made against an older C library.

Decides nothing. They are there since Linux 5.3.
"""

from __future__ import annotations

import ctypes
import os

F_ADD_SEALS = 1033
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_WRITE = 1, 2, 4, 8
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 38, 22
_MFD_CLOEXEC, _MFD_ALLOW_SEALING = 1, 2
_PIDFD_OPEN = 434
"""On every architecture."""

_libc = ctypes.CDLL(None, use_errno=True)


def create_memory_file(name: str) -> int:
    """A descriptor of a new file that can be sealed.

    Raises:
        OSError: no memory or no descriptor for it.
    """
    return _checked(_libc.memfd_create(name.encode(), _MFD_CLOEXEC | _MFD_ALLOW_SEALING))


def open_process(pid: int) -> int:
    """A descriptor that is readable once the process has ended.

    Raises:
        ProcessLookupError: there is none. OSError: no descriptor for it.
    """
    return _checked(_libc.syscall(ctypes.c_long(_PIDFD_OPEN), ctypes.c_long(pid), ctypes.c_long(0)))


def set_process(option: int, *arguments: object) -> None:
    """`prctl`: change something about this process.

    Raises:
        OSError: it can't be.
    """
    padded = (*arguments, 0, 0, 0, 0)[:4]
    _checked(_libc.prctl(option, *padded))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
