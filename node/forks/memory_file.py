"""Files in memory, which carry orders and answers of megabytes between processes.

Decides how they are sealed: an order can't be changed once it is written, an answer can't grow beyond its bound, even
by code that has been taken over. They are read with `pread`, never mapped, so no change of size can raise a signal.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence

from node.forks.kernel import F_ADD_SEALS, SEAL_GROW, SEAL_SEAL, SEAL_SHRINK, SEAL_WRITE, create_memory_file

_SLICE_CHARACTERS = 1 << 20


def write_order(parts: Sequence[bytes | str]) -> int:
    """A descriptor of a new file with the parts one after the other. Takes a millisecond per some megabytes.

    Text is written as ASCII, a question mark for what isn't; no whole copy of it is made.

    Raises:
        OSError: no memory or no descriptor for it.
    """
    file = create_memory_file("order")
    try:
        for part in parts:
            for piece in [part] if isinstance(part, bytes) else _encoded(part):
                write_all(file, piece)
        fcntl.fcntl(file, F_ADD_SEALS, SEAL_WRITE | SEAL_GROW | SEAL_SHRINK | SEAL_SEAL)
    except BaseException:
        os.close(file)
        raise
    return file


def _encoded(text: str) -> Iterator[bytes]:
    for start in range(0, len(text), _SLICE_CHARACTERS):
        yield text[start : start + _SLICE_CHARACTERS].encode("ascii", "replace")


def new_answer(most_bytes: int) -> int:
    """A descriptor of a file that may become shorter, but never longer. No memory is used until it is written.

    Raises:
        OSError: no descriptor for it.
    """
    file = create_memory_file("answer")
    try:
        os.ftruncate(file, most_bytes)
        fcntl.fcntl(file, F_ADD_SEALS, SEAL_GROW | SEAL_SEAL)
    except BaseException:
        os.close(file)
        raise
    return file


def read_all(file: int) -> bytes:
    """What is in it, wherever its position is.

    Raises:
        OSError, MemoryError: no memory.
    """
    size_bytes = os.fstat(file).st_size
    data = os.pread(file, size_bytes, 0)
    while len(data) < size_bytes and (part := os.pread(file, size_bytes - len(data), len(data))):
        data += part
    return data


def write_all(file: int, data: bytes) -> None:
    """At its position.

    Raises:
        OSError: no memory, or no room in it.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
