"""Bills that can't be booked yet: on disk, in memory, aside; and when they are tried again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from node.limits.bill import Ending, build_abandoned, build_settlement
from node.limits.books import Books
from node.limits.facts import Unreadable, decode_settlement, encode_settlement
from node.limits.limiter import (
    Booking,
    Hold,
    Limits,
    Progress,
    Settled,
    Settlement,
    SpendCap,
    Subject,
    TooOld,
    Unavailable,
)
from node.limits.prices import Price
from node.limits.spool import Spool
from shared.ids import new_request_id


def some_bill() -> Settlement:
    subject = Subject(
        new_request_id(),
        "acme",
        "main",
        "key_1",
        "b3os/test",
        "n1",
        Price(3, 15),
        Limits(5, None, 7),
        SpendCap(9, "day"),
    )
    ending = Ending("client_gone", 499, ttft_ms=1.5, total_ms=20.25, phases_ms={"parse": 0.5})
    return build_settlement(Hold(subject, 1_796_040_000_000, "0f"), Progress(True, 100, 20, 64), ending, 77)


class ScriptedLimiter:
    """Settles as it is told."""

    def __init__(self, answer: Callable[[], Booking]) -> None:
        self.answer, self.booked, self.tries = answer, list[Settlement](), 0

    async def settle(self, settlement: Settlement) -> Booking:
        """Or raises."""
        self.tries += 1
        answer = self.answer()
        if isinstance(answer, Settled):
            self.booked.append(settlement)
        return answer


class Setting:
    """Books whose Redis the test switches."""

    def __init__(self, folder: Path) -> None:
        self.limiter = ScriptedLimiter(Settled)
        self.spool = Spool(folder)
        self.is_back = asyncio.Event()
        self.books = Books(self.limiter, self.spool, until_back=self._until_back)  # type: ignore[arg-type]

    async def _until_back(self) -> None:
        await self.is_back.wait()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path / "spool")


def test_a_bill_reads_back_as_it_was_written() -> None:
    hold = some_bill().hold
    left = build_settlement(hold, Progress(input_tokens=100), Ending("client_gone", 499), 0)
    unheard = build_settlement(hold, Progress(), Ending("refused", 503), 0, is_certain=False)
    for settlement in (some_bill(), build_abandoned(hold, Progress(), 3), left, unheard):
        assert decode_settlement(encode_settlement(settlement)) == settlement
    assert (left.metered_tokens, left.record.input_tokens, unheard.metered_tokens) == (100, 0, 0)


def test_a_bill_of_an_older_node_reads_as_it_was_meant() -> None:
    settlement = some_bill()
    fields = json.loads(encode_settlement(settlement))
    del fields["is_certain"], fields["metered_tokens"]
    read = decode_settlement(json.dumps(fields).encode())
    assert read == replace(settlement, metered_tokens=None)  # what is billed


async def test_a_booked_bill_leaves_no_file(setting: Setting) -> None:
    assert await setting.books.book(some_bill()) == Settled()
    assert setting.spool.names() == []


async def test_a_bill_that_redis_did_not_take_is_on_disk_and_booked_later(setting: Setting, tmp_path: Path) -> None:
    setting.limiter.answer = Unavailable
    first, second = some_bill(), some_bill()
    assert await setting.books.book(first) == Unavailable()
    await setting.books.book(second)
    assert await setting.books.replay() == 2
    again = Setting(tmp_path / "spool")  # the process was started again
    assert await again.books.replay() == 0
    assert sorted(each.record.id for each in again.limiter.booked) == sorted([first.record.id, second.record.id])
    assert again.spool.names() == []


async def test_what_waits_is_replayed_at_start_and_whenever_redis_is_back(setting: Setting) -> None:
    setting.spool.put(some_bill())
    async with setting.books.replaying(), asyncio.timeout(20):
        await asyncio.sleep(0.05)
        assert setting.limiter.booked == []
        setting.is_back.set()
        while setting.spool.names():
            await asyncio.sleep(0.005)
        setting.limiter.answer = Unavailable
        await setting.books.book(some_bill())
        setting.limiter.answer = Settled
        while setting.spool.names():
            await asyncio.sleep(0.005)
    assert len(setting.limiter.booked) == 2


async def test_what_redis_refuses_for_now_is_tried_until_it_is_taken(setting: Setting) -> None:
    setting.limiter.answer = Unavailable
    setting.is_back.set()
    async with setting.books.replaying(), asyncio.timeout(20):
        await setting.books.book(some_bill())
        while setting.limiter.tries < 3:
            await asyncio.sleep(0.005)
        setting.limiter.answer = Settled
        while setting.spool.names():
            await asyncio.sleep(0.005)
    assert len(setting.limiter.booked) == 1


def failing() -> NoReturn:
    raise RuntimeError("a fault of ours")


async def test_a_fault_of_ours_loses_no_bill_either(setting: Setting) -> None:
    setting.limiter.answer = failing
    await setting.books.book(some_bill())
    assert len(setting.spool.names()) == 1
    assert await setting.books.replay() == 1
    setting.limiter.answer = Settled
    assert await setting.books.replay() == 0


async def test_a_bill_waits_in_memory_where_the_disk_is_full(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(settlement: Settlement) -> None:
        raise OSError("no space left")

    setting.limiter.answer = Unavailable
    monkeypatch.setattr(setting.spool, "put", full)
    settlement = some_bill()
    await setting.books.book(settlement)
    assert await setting.books.replay() == 1
    setting.limiter.answer = Settled
    assert await setting.books.replay() == 0
    assert setting.limiter.booked == [settlement]


async def test_a_cut_file_is_set_aside_and_the_others_are_booked(setting: Setting, tmp_path: Path) -> None:
    setting.spool.put(some_bill())
    whole = encode_settlement(some_bill())
    for number, text in enumerate((b"", whole[:-1], whole[: len(whole) // 2], b"{}", b"\xff\x00")):
        (tmp_path / "spool" / f"req_0{number}.bill").write_bytes(text)
        with pytest.raises(Unreadable):
            setting.spool.read(f"req_0{number}.bill")
    assert await setting.books.replay() == 0
    assert len(setting.limiter.booked) == 1
    assert setting.spool.names() == []
    assert len(list((tmp_path / "spool").glob("*.aside"))) == 5  # for an operator


async def test_a_bill_too_old_to_be_booked_safely_is_set_aside(setting: Setting, tmp_path: Path) -> None:
    setting.spool.put(some_bill())
    setting.limiter.answer = TooOld
    assert await setting.books.replay() == 0
    assert len(list((tmp_path / "spool").glob("*.aside"))) == 1


def test_what_a_crash_cut_while_writing_is_no_bill(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    Spool(folder).put(settlement := some_bill())
    (folder / "req_1-abcd.partial").write_bytes(b'{"hold"')
    spool = Spool(folder)
    assert spool.names() == [f"{settlement.record.id}.bill"]
    assert not list(folder.glob("*.partial"))
    assert spool.read("req_gone.bill") is None


def test_nobody_else_reads_the_spool(tmp_path: Path) -> None:
    Spool(tmp_path / "spool")
    assert (tmp_path / "spool").stat().st_mode & 0o077 == 0
