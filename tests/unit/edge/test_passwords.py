"""argon2id at the promised cost, for those who exist and those who don't, a few at a time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from edge.auth import passwords
from edge.auth.passwords import Passwords, hash_password, is_password
from shared.errors import NODE_UNAVAILABLE, ApiError

COSTS = "$argon2id$v=19$m=19456,t=2,p=1$"


def test_a_hash_has_the_promised_costs_and_its_own_salt() -> None:
    first, second = hash_password("x"), hash_password("x")
    assert first.startswith(COSTS)
    assert first != second


def test_a_password_is_the_one_that_was_hashed() -> None:
    hashed = hash_password("caf\u00e9")
    assert is_password("caf\u00e9", hashed)
    assert is_password("cafe\u0301", hashed)  # the same, as another keyboard writes it
    assert not is_password("cafe", hashed)


def test_nobody_has_the_hash_of_those_who_do_not_exist_and_it_costs_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert passwords._NOBODY.startswith(COSTS)
    seen: list[str] = []

    class Spy:
        @staticmethod
        def verify_phc_encoded(password: bytes, phc: str) -> None:
            del password
            seen.append(phc)

    monkeypatch.setattr(passwords, "Argon2id", Spy)
    assert not is_password("anything", None)
    assert seen == [passwords._NOBODY]


async def test_a_few_work_some_wait_and_the_rest_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, running, most = threading.Event(), [0], [0]
    lock = threading.Lock()

    def check(password: str, hashed: str | None) -> bool:
        del password, hashed
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait(10)
        with lock:
            running[0] -= 1
        return True

    monkeypatch.setattr(passwords, "is_password", check)
    pool = Passwords(threads=2, max_waiting=5)
    tasks = [asyncio.create_task(pool.verify("x", None)) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as caught:
        await pool.verify("x", None)
    assert (caught.value.condition, caught.value.retry_after_s) == (NODE_UNAVAILABLE, 1)
    gate.set()
    assert await asyncio.gather(*tasks) == [True] * 5
    assert most[0] <= 2
    assert await pool.verify("x", None)
    pool.close()
