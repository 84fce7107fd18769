"""A zygote whose forks do what a test asks for, good and bad: `python -m tests.integration.node.odd_zygote`.

The order ends with `#` and the name of what is to be done; the limits are small. Arguments are the wall time in
seconds, `unjailed` for a kernel that takes no filters, and `impatient`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

from PIL import Image

from node.forks import zygote
from node.forks.limits import Limits
from node.images import decode_zygote

MOST_ANSWER_BYTES = 1 << 20
LIMITS = Limits(cpu_s=1.0, wall_s=300.0, patience_s=300.0, memory_bytes=64 << 20, most_answer_bytes=MOST_ANSWER_BYTES)
ZYGOTE = os.getpid()
_libc = ctypes.CDLL(None)
_PTRACE_ATTACH = 16


def wait() -> bytes:
    """For ever, without a processor."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
    return b""


def spin() -> bytes:
    """In C, for minutes."""
    return hashlib.pbkdf2_hmac("sha256", b"a", b"b", 1 << 30)


def crash() -> bytes:
    """As a decoder may."""
    return ctypes.string_at(0)


def spin_without_signals() -> bytes:
    """As code may that has been taken over."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF, signal.SIGXCPU})
    return spin()


def open_descriptors() -> bytes:
    """Their numbers; the answer's own is among them."""
    found = []
    for number in range(256):
        try:
            os.lseek(number, 0, os.SEEK_CUR)
        except OSError as error:
            if error.errno == errno.EBADF:
                continue
        found.append(number)
    return bytes(found)


def grow_answer() -> bytes:
    """Past its bound, by the descriptor behind the standard ones."""
    answer = open_descriptors()[-1]
    try:
        os.ftruncate(answer, 64 << 20)
    except OSError as error:
        return errno.errorcode[error.errno or 0].encode()
    return b"grown"


def map_code() -> bytes:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    return b"mapped"


def protect_code() -> bytes:
    page = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    _libc.mprotect(ctypes.c_void_p(address), 4096, mmap.PROT_READ | mmap.PROT_EXEC)
    return b"protected"


def connect() -> bytes:
    socket.create_connection(("127.0.0.1", 9))
    return b"connected"


def start_thread() -> bytes:
    threading.Thread(target=bytes).start()
    return b"started"


FORBIDDEN: dict[str, Callable[[], object]] = {
    "open a file": lambda: os.open("/etc/hostname", os.O_RDONLY),
    "look at a file": lambda: os.stat("/etc/hostname"),
    "connect": connect,
    "fork": os.fork,
    "start a thread": start_thread,
    "execute": lambda: os.execv("/bin/true", ["true"]),
    "signal the zygote": lambda: os.kill(ZYGOTE, signal.SIGTERM),
    "signal itself": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "trace the zygote": lambda: _libc.ptrace(_PTRACE_ATTACH, ZYGOTE, 0, 0),
    "lift its limits": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30)),
    "stop its timer": lambda: signal.setitimer(signal.ITIMER_PROF, 0),
    "run what it wrote": map_code,
    "make what it wrote run": protect_code,
    "read descriptors' flags": lambda: fcntl.fcntl(1, fcntl.F_GETFL),
}
"""What a jail is there for."""

WORKS: dict[str, Callable[[], bytes]] = {
    "wait": wait,
    "spin": spin,
    "spin without signals": spin_without_signals,
    "crash": crash,
    "open descriptors": open_descriptors,
    "grow answer": grow_answer,
    "too much memory": lambda: bytes(1 << 30),
    "too long": lambda: bytes(MOST_ANSWER_BYTES + 1),
    "longest": lambda: bytes(MOST_ANSWER_BYTES),
    "nothing": lambda: b"",
    "ask C for the time": lambda: b"told" if _libc.localtime(ctypes.byref(ctypes.c_long(0))) else b"",
    "garbage": lambda: b"garbage" * 1000,
    "another size": lambda: struct.pack("<BII", 0, 100, 100) + bytes(9),
    "no size": lambda: struct.pack("<BII", 0, 0, 0),
    "a giant": lambda: struct.pack("<BII", 0, 0xFFFFFFFF, 0xFFFFFFFF) + bytes(99),
    "an unknown flaw": lambda: struct.pack("<BII", 255, 0, 0),
}


def work(order: bytes) -> bytes:
    """What the order asks for."""
    data, _, name = order.rpartition(b"#")
    match name.decode("latin-1"):
        case "measure":
            return b"%d %s" % (len(data), hashlib.sha256(data).hexdigest().encode())
        case "decode":
            return decode_zygote.decode(order)
        case str() as asked if asked in FORBIDDEN:
            FORBIDDEN[asked]()
            return b"nothing happened"
        case asked:
            return WORKS[asked]()


if __name__ == "__main__":
    Image.preinit()
    if "unjailed" in sys.argv:
        mock.patch.object(zygote, "enter_jail", return_value=False).start()
    wall_s = float(sys.argv[1]) if sys.argv[1:] else LIMITS.wall_s
    patience_s = 0.1 if "impatient" in sys.argv else LIMITS.patience_s
    zygote.serve(work, replace(LIMITS, wall_s=wall_s, patience_s=patience_s))
