"""A filter of system calls for code that only computes.

Decides which calls a fork may make once it has its order: to get memory, to write its answer and to end. Any other
kills it: it can't open a file, make a socket, start a process or a thread, send a signal, or lift its limits.

The filter is a program for the kernel (seccomp(2), bpf(4)); it can't be taken off again.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from collections.abc import Iterator, Set
from dataclasses import dataclass

from node.forks.kernel import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, set_process


@dataclass(frozen=True, slots=True)
class _Call:
    """A system call's numbers on x86_64 and aarch64."""

    x86_64: int
    aarch64: int


_COMPUTING = {
    "read": _Call(0, 63),
    "write": _Call(1, 64),
    "close": _Call(3, 57),
    "lseek": _Call(8, 62),
    "munmap": _Call(11, 215),
    "brk": _Call(12, 214),
    "rt_sigaction": _Call(13, 134),
    "rt_sigprocmask": _Call(14, 135),
    "rt_sigreturn": _Call(15, 139),
    "sched_yield": _Call(24, 124),
    "mremap": _Call(25, 216),
    "madvise": _Call(28, 233),
    "exit": _Call(60, 93),
    "ftruncate": _Call(77, 46),
    "futex": _Call(202, 98),
    "restart_syscall": _Call(219, 128),
    "clock_gettime": _Call(228, 113),
    "clock_getres": _Call(229, 114),
    "exit_group": _Call(231, 94),
    "getrandom": _Call(318, 278),
}
_WITHOUT_CODE = {"mmap": _Call(9, 222), "mprotect": _Call(10, 226)}
"""Their third argument is the protection: memory that can be run is not to be had."""
_ON_REQUEST = {"setitimer": _Call(38, 103)}

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP_MODE_FILTER = 2
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_KILL, _ALLOW = 0x80000000, 0x7FFF0000
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32
"""Offsets in `struct seccomp_data`."""


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def enter_jail(also: Set[str] = frozenset()) -> bool:
    """From here on, allow this process nothing but to compute.

    Args:
        also: calls that are allowed besides, of those in `_ON_REQUEST`.

    Returns:
        Whether the kernel took the filter; if not, nothing is filtered.
    """
    machine = platform.machine()
    if machine not in _AUDIT:
        return False
    data = b"".join(_program(machine, also))
    program = _Program(len(data) // 8, data)
    try:
        set_process(PR_SET_NO_NEW_PRIVS, 1)  # who can't get privileges needs none to set a filter
        set_process(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))
    except OSError:
        return False
    return True


def _program(machine: str, also: Set[str]) -> Iterator[bytes]:
    """Its instructions; a jump names how many of those behind it are passed over, if it holds and if not."""
    yield _step(_LOAD, _ARCHITECTURE)
    yield _step(_JUMP_EQUAL, _AUDIT[machine], 1, 0)  # a 32-bit call has other numbers
    yield _step(_RETURN, _KILL)
    yield _step(_LOAD, _NUMBER)
    for call in (*_COMPUTING.values(), *(_ON_REQUEST[name] for name in also)):
        yield _step(_JUMP_EQUAL, getattr(call, machine), 0, 1)
        yield _step(_RETURN, _ALLOW)
    for call in _WITHOUT_CODE.values():
        yield _step(_JUMP_EQUAL, getattr(call, machine), 0, 4)
        yield _step(_LOAD, _THIRD_ARGUMENT)
        yield _step(_JUMP_SET, mmap.PROT_EXEC, 0, 1)
        yield _step(_RETURN, _KILL)
        yield _step(_RETURN, _ALLOW)
    yield _step(_RETURN, _KILL)


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """`struct sock_filter`."""
    return struct.pack("<HBBI", code, if_true, if_false, operand)
