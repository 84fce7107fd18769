"""The breaker, and the bound on logged refusals."""

from __future__ import annotations

import asyncio

from node.limits.breaker import Breaker
from node.limits.facts import running_record
from node.limits.limiter import Limits, Subject
from node.limits.prices import Price
from node.limits.refusals import MOST_PER_SECOND, MOST_WAITING, RefusalLog
from shared.ids import new_request_id
from shared.request_log import RequestRecord


class Probe:
    """Fails until it is told not to."""

    def __init__(self) -> None:
        self.count, self.is_back = 0, False

    async def __call__(self) -> None:
        self.count += 1
        if not self.is_back:
            raise ConnectionError


async def test_it_opens_with_a_failure_and_closes_with_a_probe() -> None:
    probe = Probe()
    breaker = Breaker(probe, probe_every_s=0.001)
    states = [breaker.is_open]
    breaker.trip("ConnectionError")
    states.append(breaker.is_open)
    async with asyncio.timeout(20):
        while probe.count < 5:
            await asyncio.sleep(0.001)
        states.append(breaker.is_open)
        probe.is_back = True
        await breaker.wait_until_closed()
    assert [*states, breaker.is_open] == [False, True, True, False]


async def test_many_failures_make_one_prober_and_it_probes_at_once_then_rests() -> None:
    probe = Probe()
    breaker = Breaker(probe, probe_every_s=3600)
    for _ in range(100):
        breaker.trip("ConnectionError")
    await asyncio.sleep(0.05)
    assert probe.count == 1
    await breaker.aclose()
    assert breaker.is_open


class Recorder:
    """A limiter that only takes refusals."""

    def __init__(self) -> None:
        self.written: list[str] = []

    async def log_refusal(self, org: str, record: RequestRecord) -> None:
        """The first fails."""
        self.written.append(org)
        if len(self.written) == 1:
            raise RuntimeError("a fault of ours")


def a_record() -> RequestRecord:
    return running_record(Subject(new_request_id(), "acme", "main", "k", "b3os/test", "n1", Price(), Limits()))


async def test_refusals_are_written_up_to_a_rate_for_each_organization() -> None:
    recorder, now_s = Recorder(), [100.0]
    log = RefusalLog(recorder, clock_s=lambda: now_s[0])  # type: ignore[arg-type]
    taken = [log.note("flooded", a_record()) for _ in range(500)]
    assert taken == [True] * MOST_PER_SECOND + [False] * (500 - MOST_PER_SECOND)
    assert log.note("calm", a_record())
    now_s[0] += 1
    assert log.note("flooded", a_record())
    async with log.writing(), asyncio.timeout(20):
        while len(recorder.written) < MOST_PER_SECOND + 2:
            await asyncio.sleep(0.001)
    assert recorder.written.count("calm") == 1


async def test_refusals_of_ever_new_organizations_wait_in_bounded_number() -> None:
    log = RefusalLog(Recorder())  # type: ignore[arg-type]
    assert sum(log.note(f"org{number}", a_record()) for number in range(MOST_WAITING + 50)) == MOST_WAITING
