"""Passwords: how they are hashed and checked, without holding up anybody else.

Decides the cost of a guess (argon2id, RFC 9106: 19 MiB, 2 passes) and how many are made at once. Must not know users.
"""

from __future__ import annotations

import asyncio
import os
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from shared.errors import NODE_UNAVAILABLE, ApiError

T = TypeVar("T")
MIN_CHARACTERS = 12
MAX_CHARACTERS = 1024
THREADS = 2
MAX_WAITING = 32
_MEMORY_KIB, _PASSES, _LANES, _TAG_BYTES, _SALT_BYTES = 19 * 1024, 2, 1, 32, 16
# The hash of a password that nobody has, with the costs of all others: what unknown users are checked against.
_NOBODY = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


def hash_password(password: str) -> str:
    """A PHC string with a salt of its own."""
    kdf = Argon2id(
        salt=os.urandom(_SALT_BYTES), length=_TAG_BYTES, iterations=_PASSES, lanes=_LANES, memory_cost=_MEMORY_KIB
    )
    return kdf.derive_phc_encoded(_to_bytes(password))


def is_password(password: str, hashed: str | None) -> bool:
    """Whether it is the one that was hashed; takes its time where there is none."""
    try:
        Argon2id.verify_phc_encoded(_to_bytes(password), _NOBODY if hashed is None else hashed)
    except InvalidKey:
        return False
    return hashed is not None


def _to_bytes(password: str) -> bytes:
    """One password can be typed as different code points; NFC makes them one (RFC 8265 §4.2.2)."""
    return unicodedata.normalize("NFC", password).encode()


class Passwords:
    """Hashes and checks in threads of its own: a hash takes some 25 ms, which argon2 spends without the GIL."""

    def __init__(self, *, threads: int = THREADS, max_waiting: int = MAX_WAITING) -> None:
        """`threads` times 19 MiB is the most memory that this takes."""
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._turns = asyncio.Semaphore(threads)
        self._waiting = 0
        self._max_waiting = max_waiting

    async def hash(self, password: str) -> str:
        """See `hash_password`.

        Raises:
            ApiError: `NODE_UNAVAILABLE`; too many wait already.
        """
        return await self._run(lambda: hash_password(password))

    async def verify(self, password: str, hashed: str | None) -> bool:
        """See `is_password`.

        Raises:
            ApiError: `NODE_UNAVAILABLE`; too many wait already.
        """
        return await self._run(lambda: is_password(password, hashed))

    async def _run(self, work: Callable[[], T]) -> T:
        if self._waiting >= self._max_waiting:
            raise ApiError(NODE_UNAVAILABLE, "too many log-ins at once; retry in 1 second", retry_after_s=1)
        self._waiting += 1
        try:
            async with self._turns:
                return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let its threads go."""
        self._executor.shutdown(wait=False, cancel_futures=True)
