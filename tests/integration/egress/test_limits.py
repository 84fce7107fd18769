"""What a fetch may cost: bytes, time, memory, and how many go on at once."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest

from node.images.dial import READ_BYTES
from node.images.fetch import EgressGuard, max_received_bytes
from node.images.verdict import EgressRefused, Verdict
from shared.errors import BACKEND_UNAVAILABLE, INVALID_REQUEST, ApiError
from tests.integration.egress.behaviours import LARGEST, PNG, STEP_S, TOTAL_S
from tests.integration.egress.conftest import PATIENT, At, fetch_one, lab_settings, refusal
from tests.integration.egress.floods import BURSTS, PLAIN_FLOODS
from tests.integration.egress.lab import FLOOD, PLAIN_FLOOD_HOSTS, Lab
from tests.unmetered import Unmetered

MIB = 1 << 20


class CountingMeter:
    """Notes what it is charged, and refuses when more than `limit` has come."""

    payer = "someone"

    def __init__(self, limit: int = 1 << 40) -> None:
        self.charges: list[int] = []
        self.limit = limit

    async def charge(self, count: int) -> None:
        self.charges.append(count)
        if sum(self.charges) > self.limit:
            raise ApiError(INVALID_REQUEST, "the budget is spent")

    async def charge_rest(self) -> None:
        """All is charged at once."""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "path", ["/ok.png", "/hops/3", "/exact", "/over", "/404", "/chunk-ext", "/svg", "/tiny-chunks"]
)
async def test_every_byte_that_arrived_is_charged_whatever_came_of_it(
    lab: Lab, guard: EgressGuard, at: At, path: str
) -> None:
    meter = CountingMeter()
    with suppress(EgressRefused):
        await fetch_one(guard, at(path), meter)
    assert meter.charges[0] == 0
    assert sum(meter.charges) == guard.counts.received_bytes > 0
    assert sum(meter.charges) <= max_received_bytes(lab_settings(lab)) + READ_BYTES


async def test_who_has_no_budget_left_asks_nobody(lab: Lab, guard: EgressGuard, at: At, dialled: list[str]) -> None:
    with pytest.raises(ApiError):
        await fetch_one(guard, at("/ok.png"), CountingMeter(limit=-1))
    assert not dialled
    assert not lab.names.resolver.asked
    assert guard.counts.by_verdict == {Verdict.OVER_BUDGET: 1}


async def test_a_budget_that_ends_on_the_way_ends_the_fetch(guard: EgressGuard, at: At) -> None:
    meter = CountingMeter(limit=MIB)
    with pytest.raises(ApiError):
        await fetch_one(guard, at("/endless"), meter)
    assert sum(meter.charges) <= MIB + READ_BYTES
    assert guard.counts.by_verdict == {Verdict.OVER_BUDGET: 1}


# Several at once.


async def gathered(seen: list[str], url: str, data: bytes) -> int:
    seen.append(url)
    return len(data)


async def test_the_same_url_is_fetched_once(lab: Lab, guard: EgressGuard, at: At) -> None:
    seen: list[str] = []
    urls = [at("/ok.png"), at("/ok.png?2"), at("/ok.png"), at("/ok.png")]
    sizes = await guard.fetch_all(urls, lambda url, data: gathered(seen, url, data), Unmetered())
    assert sizes == {at("/ok.png"): len(PNG), at("/ok.png?2"): len(PNG)}
    assert len(lab.requests) == len(seen) == 2


async def test_one_url_that_cannot_be_read_keeps_all_packets_here(
    lab: Lab, guard: EgressGuard, at: At, dialled: list[str]
) -> None:
    urls = [at("/ok.png"), "https://127.0.0.1/"]
    refused = await refusal(guard.fetch_all(urls, lambda url, data: gathered([], url, data), Unmetered()))
    assert (refused.verdict, refused.url) == (Verdict.ADDRESS_LITERAL, urls[1])
    assert not dialled
    assert not lab.names.resolver.asked


async def test_more_than_twenty_urls_are_too_many(guard: EgressGuard, at: At) -> None:
    urls = [at(f"/ok.png?{number}") for number in range(21)]
    refused = await refusal(guard.fetch_all(urls, lambda url, data: gathered([], url, data), Unmetered()))
    assert (refused.verdict, refused.url) == (Verdict.TOO_MANY_URLS, urls[20])


async def test_a_request_has_four_fetches_at_once(lab: Lab, guard: EgressGuard, at: At) -> None:
    urls = [at(f"/silent?{number}") for number in range(8)]
    work = asyncio.create_task(guard.fetch_all(urls, lambda url, data: gathered([], url, data), Unmetered()))
    await until(lambda: len(lab.requests) == 4)
    await asyncio.sleep(0.2)
    assert len(lab.requests) == 4
    refused = await refusal(work)
    assert refused.verdict is Verdict.STALLED
    assert refused.url in urls[:4]
    assert set(guard.counts.by_verdict) <= {Verdict.STALLED, Verdict.ABANDONED}  # the first failure ends the others
    assert len(lab.requests) == 4


async def test_a_node_has_sixteen_fetches_at_once_and_nobody_waits_long(lab: Lab, guard: EgressGuard, at: At) -> None:
    begun = time.monotonic()
    callers = ["one"] * 20 + ["another"] * 8
    works = [
        asyncio.create_task(fetch_one(guard, at(f"/slow-body?{n}"), Unmetered(who))) for n, who in enumerate(callers)
    ]
    await until(lambda: len(lab.requests) == 16)
    await asyncio.sleep(0.3)
    assert len(lab.requests) == lab.answering == 16
    for ended in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(ended, ApiError):
            assert ended.condition is BACKEND_UNAVAILABLE
        else:
            assert isinstance(ended, EgressRefused)
            assert ended.verdict is Verdict.TOO_SLOW
    assert time.monotonic() - begun < 2 * TOTAL_S + 10


async def test_one_caller_leaves_places_for_others_however_slow_its_servers(lab: Lab, at: At) -> None:
    guard = EgressGuard(lab_settings(lab, **PATIENT))  # nobody's time is over meanwhile
    one = Unmetered("one")
    works = [asyncio.create_task(fetch_one(guard, at(f"/slow-body?{number}"), one)) for number in range(24)]
    await until(lambda: len(lab.requests) == 12)
    assert await fetch_one(guard, at("/ok.png"), Unmetered("another")) == PNG
    assert [work.done() for work in works] == [False] * 24
    for work in works:
        work.cancel()
    await asyncio.gather(*works, return_exceptions=True)


async def test_a_client_that_leaves_ends_the_fetch_and_frees_its_place(lab: Lab, at: At) -> None:
    guard = EgressGuard(lab_settings(lab, **PATIENT))
    for _ in range(20):
        lab.requests.clear()
        work = asyncio.create_task(fetch_one(guard, at("/silent")))
        await until(lambda: bool(lab.requests))
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert guard.counts.by_verdict == {Verdict.ABANDONED: 20}
    assert await fetch_one(guard, at("/ok.png")) == PNG


async def test_nothing_stays_open(lab: Lab, at: At) -> None:
    process = psutil.Process()

    async def all_kinds() -> None:
        guard = EgressGuard(lab_settings(lab))
        for path in ("/ok.png", "/hops/2", "/404", "/rst", "/over", "/1xx-flood", "/to?https%3A%2F%2F127.0.0.1%2F"):
            with suppress(EgressRefused):
                await fetch_one(guard, at(path))

    await all_kinds()
    await asyncio.sleep(0.3)
    before = process.num_fds()
    for _ in range(5):
        await all_kinds()
    await until(lambda: process.num_fds() <= before + 3 and len(asyncio.all_tasks()) == 1)


class Heartbeat:
    """The longest that the loop's thread computed between two of its turns; waiting for a busy CPU doesn't count."""

    async def __aenter__(self) -> Heartbeat:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s, last = max(self.longest_s, now - last), now


HOSTILE = """
/tiny-chunks /endless /endless-eof /endless-text /many-headers /huge-header /endless-headers /endless-header
/endless-folds /1xx-flood /empty-lines /chunk-ext /chunk-exts /trailer-bomb /exact /exact-chunked /over /gzip-bomb
/gzip-unsaid /loop
"""


@pytest.mark.parametrize("path", HOSTILE.split())
async def test_no_server_holds_the_loop(guard: EgressGuard, at: At, path: str) -> None:
    async with Heartbeat() as heartbeat:
        fetches = (fetch_one(guard, at(path)) for _ in range(16 if path == "/tiny-chunks" else 3))
        await asyncio.gather(*fetches, return_exceptions=True)
    assert heartbeat.longest_s < 0.1


FLOODS = [*BURSTS, *PLAIN_FLOODS]
ENOUGH_BYTES = 2_000_000
"""More than any of twelve floods may take in together: a MiB each would be for pictures."""


@pytest.mark.parametrize("flood", FLOODS)
async def test_no_tls_without_data_holds_the_loop_or_comes_for_nothing(lab: Lab, flood: str) -> None:
    """Pieces are bounded, paced and charged before TLS reads them. The lab takes time to make twelve floods."""
    host = PLAIN_FLOOD_HOSTS.get(flood, FLOOD)
    lab.names.resolver.load({"flood.lab.example": {"A": [host]}})
    guard = EgressGuard(lab_settings(lab, **PATIENT))
    meter = CountingMeter()
    url = lab.url("https://flood.lab.example") + (flood if host == FLOOD else "/")
    async with Heartbeat() as heartbeat:
        works = [asyncio.create_task(fetch_one(guard, url, meter)) for _ in range(12)]
        refusals = [await refusal(work) for work in works]
    expected = {Verdict.TOO_WORDY, Verdict.INCOMPLETE} if host == FLOOD else {Verdict.TLS_FAILED}
    assert {refused.verdict for refused in refusals} <= expected
    assert heartbeat.longest_s < 0.1
    assert max(meter.charges) <= READ_BYTES
    assert 0 < sum(meter.charges) == guard.counts.received_bytes
    assert guard.counts.received_bytes < (16 * MIB if flood.startswith("/one-byte") else ENOUGH_BYTES)


@pytest.mark.parametrize("path", ["/exact", "/exact-chunked", "/over", "/endless", "/tiny-chunks", "/huge-header"])
async def test_no_server_makes_us_hold_three_times_the_largest_image(guard: EgressGuard, at: At, path: str) -> None:
    """Everything of this process counts, the lab's own buffers too."""
    await fetch_one(guard, at("/ok.png"))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with suppress(EgressRefused):
            await fetch_one(guard, at(path))
        assert tracemalloc.get_traced_memory()[1] - before < 3 * LARGEST
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", ["/slow-head", "/slow-body", "/slow-headers", "/1xx-slow", "/silent", "/stall"])
async def test_no_server_keeps_us_longer_than_the_deadline(guard: EgressGuard, at: At, path: str) -> None:
    begun = time.monotonic()
    await refusal(fetch_one(guard, at(path)))
    assert STEP_S - 0.1 < time.monotonic() - begun < TOTAL_S + 10  # a slow body takes half a minute
