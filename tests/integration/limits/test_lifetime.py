"""One request's reservation in a node, from admission to its bill, on a real Redis, with all that may end it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from node.engine.port import Usage
from node.limits import names
from node.limits.bill import Ending, build_settlement
from node.limits.books import Books
from node.limits.facts import decode_settlement, encode_settlement
from node.limits.limiter import (
    Adjusted,
    Admission,
    CapReached,
    Charged,
    ConcurrencyLimited,
    Hold,
    Limits,
    Needs,
    Progress,
    RateLimited,
    Renewal,
    Settled,
    SpendCap,
    Subject,
)
from node.limits.redis_limiter import RedisLimiter
from node.limits.settlement import Desk, Reservation
from node.limits.spool import Spool
from node.limits.waits import Waits
from shared.errors import EGRESS_DENIED, INTERNAL, ApiError
from shared.ids import new_request_id
from shared.request_log import RequestRecord
from shared.timing import Phases
from tests.integration.limits.parts import World, hold_of

COST = 100 * 3 + 20 * 15


def desk_of(world: World, folder: Path, *, renew_every_s: float = 10) -> Desk:
    """One node's."""
    limiter = world.limiter()
    return Desk(
        limiter, Books(limiter, Spool(folder), until_back=limiter.store.breaker.wait_until_closed), renew_every_s
    )


@pytest.fixture
async def desk(world: World, tmp_path: Path) -> AsyncIterator[Desk]:
    """With nothing left to settle at the end."""
    each = desk_of(world, tmp_path / "spool")
    yield each
    await each.aclose()


async def opened(desk: Desk, subject: Subject, phases: Phases | None = None) -> Reservation:
    """What must have been admitted."""
    return await opened_for(desk, subject, Needs(500, 5000), phases)


async def opened_for(desk: Desk, subject: Subject, needs: Needs, phases: Phases | None = None) -> Reservation:
    """The same for these."""
    reservation = await desk.open(subject, needs, phases)
    assert isinstance(reservation, Reservation), reservation
    return reservation


async def ended(world: World, subject: Subject) -> RequestRecord:
    """Its record; nothing of it is held any more."""
    assert await world.running() == 0
    assert (await world.spent())[1] == 0
    record = await world.log.fetch(world.org, subject.request_id)
    assert record is not None
    assert len(await world.ledger()) == (1 if record.cost_nano_usd else 0)
    assert (await world.spent())[0] == record.cost_nano_usd
    return record


async def test_a_finished_answer_is_billed_and_logged(world: World, desk: Desk) -> None:
    phases = Phases()
    phases.add("ttft", 12.3456)
    async with await opened(desk, subject := world.subject(), phases) as reservation:
        assert await reservation.adjust(Needs(300, 4000)) == Adjusted()
        assert await reservation.charge_images(70) == Charged()
        assert await reservation.charge_images(7) == Charged()
        usage = Usage(100)
        reservation.follow(usage)
        reservation.note_prefilled()
        usage.output_tokens, usage.cached_tokens = 20, 64
        reservation.notes.status, reservation.notes.stop_reason = 200, "end_turn"
    record = await ended(world, subject)
    assert replace(record, total_ms=None) == RequestRecord(
        id=subject.request_id,
        created_ms=world.clock.now_ms,
        key_id="key_1",
        project="main",
        model="b3os/test",
        node="n1",
        outcome="finished",
        status=200,
        stop_reason="end_turn",
        input_tokens=100,
        output_tokens=20,
        cached_tokens=64,
        image_bytes=77,
        cost_nano_usd=COST,
        price="in3-out15",
        ttft_ms=12.35,
        phases_ms={"ttft": 12.35},
    )
    assert record.total_ms is not None


@dataclass(frozen=True, slots=True)
class Course:
    """How far a request comes before something ends it."""

    image_bytes: int = 0
    has_prefilled: bool = False
    output_tokens: int | None = None
    status: int | None = None

    async def run(self, desk: Desk, subject: Subject, error: BaseException) -> None:
        """Let in, until the error."""
        async with await opened(desk, subject) as reservation:
            if self.image_bytes:
                await reservation.charge_images(self.image_bytes)
            reservation.follow(usage := Usage(100))
            if self.has_prefilled:
                reservation.note_prefilled()
            reservation.notes.status = self.status
            usage.output_tokens = self.output_tokens or 0
            raise error


async def test_a_refusal_after_admission_bills_nothing(world: World, desk: Desk) -> None:
    subject = world.subject()
    with pytest.raises(ApiError):
        await Course(image_bytes=50).run(desk, subject, ApiError(EGRESS_DENIED, "no"))
    record = await ended(world, subject)
    assert (record.outcome, record.status, record.error_code) == ("refused", 403, "egress_denied")
    assert (record.cost_nano_usd, record.input_tokens, record.image_bytes) == (0, 0, 50)


@pytest.mark.parametrize(("has_prefilled", "cost"), [(False, 0), (True, 300)])
async def test_a_client_that_leaves_before_the_first_token_pays_for_a_computed_prompt_only(
    world: World, desk: Desk, has_prefilled: bool, cost: int
) -> None:
    subject = world.subject()
    with pytest.raises(asyncio.CancelledError):
        await Course(has_prefilled=has_prefilled).run(desk, subject, asyncio.CancelledError())
    record = await ended(world, subject)
    assert (record.outcome, record.status, record.cost_nano_usd) == ("client_gone", 499, cost)


async def test_a_client_that_leaves_before_the_first_token_gets_no_tokens_of_its_prompt_back(
    world: World, tmp_path: Path
) -> None:
    """It pays nothing, but what an engine was given to compute counts: else it could be had computed without end."""
    desk = desk_of(world, tmp_path / "spool")
    limits = Limits(tokens_per_minute=1000)
    with pytest.raises(asyncio.CancelledError):
        await Course().run(desk, world.subject(limits), asyncio.CancelledError())
    assert await world.meter("tokens") == {world.clock.now_ms // 5000: 100}
    for error in (ApiError(INTERNAL, "the engine failed"), ZeroDivisionError()):
        with pytest.raises(type(error)):
            await Course().run(desk, world.subject(limits), error)
    with pytest.raises(asyncio.CancelledError):
        async with await opened(desk, world.subject(limits)):
            raise asyncio.CancelledError  # before an engine was asked
    assert await world.meter("tokens") == {world.clock.now_ms // 5000: 100}
    with pytest.raises(asyncio.CancelledError):
        await Course(output_tokens=20).run(desk, world.subject(limits), asyncio.CancelledError())
    assert await world.meter("tokens") == {world.clock.now_ms // 5000: 220}
    assert await world.spent() == (COST, 0)


async def test_what_the_meter_keeps_of_a_leaver_waits_in_the_spool_with_its_bill(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(Limits(tokens_per_minute=1000)), Needs(500, 5000)))
    settlement = build_settlement(hold, Progress(input_tokens=100), Ending("client_gone", 499), 0)
    assert await world.limiter().settle(decode_settlement(encode_settlement(settlement))) == Settled()
    assert await world.meter("tokens") == {world.clock.now_ms // 5000: 100}
    assert (await ended(world, hold.subject)).cost_nano_usd == 0


@pytest.mark.parametrize(("status", "output_tokens"), [(None, None), (200, 20)])
async def test_what_the_node_cancels_because_it_stops_has_failed_and_left_nobody(
    world: World, desk: Desk, status: int | None, output_tokens: int | None
) -> None:
    desk.stop()
    subject = world.subject(Limits(tokens_per_minute=1000))
    with pytest.raises(asyncio.CancelledError):
        await Course(output_tokens=output_tokens, status=status).run(desk, subject, asyncio.CancelledError())
    record = await ended(world, subject)
    assert (record.outcome, record.status, record.error_code) == ("failed", status or 503, "node_unavailable")
    assert record.output_tokens == (output_tokens or 0)
    assert sum((await world.meter("tokens")).values()) == (120 if output_tokens else 0)


async def test_who_left_before_the_node_stops_is_gone_all_the_same(world: World, desk: Desk) -> None:
    desk.stop()
    subject = world.subject()
    with pytest.raises(ConnectionResetError):
        await Course(output_tokens=20, status=200).run(desk, subject, ConnectionResetError())
    assert (await ended(world, subject)).outcome == "client_gone"


class CountingLimiter(RedisLimiter):
    """Counts admissions that were asked for."""

    asked = 0

    async def admit(self, subject: Subject, needs: Needs, attempt: int = 1) -> Admission:
        self.asked += 1
        return await super().admit(subject, needs)


async def test_whoever_was_told_to_wait_is_refused_without_asking_redis_until_the_wait_is_over(
    world: World, tmp_path: Path
) -> None:
    limiter = CountingLimiter(world.limiter().store, clock_ms=world.clock)
    books = Books(limiter, Spool(tmp_path / "spool"), until_back=limiter.store.breaker.wait_until_closed)
    desk = Desk(limiter, books, waits=Waits(lambda: world.clock.now_ms / 1000))
    limits = Limits(requests_per_minute=1)
    world.clock.wait(1.234)
    async with await opened(desk, world.subject(limits)):
        pass
    world.clock.wait(20)
    refused = await desk.open(world.subject(limits), Needs())
    assert isinstance(refused, RateLimited)
    assert limiter.asked == 2
    world.clock.wait(10.5)
    later = await desk.open(world.subject(limits), Needs())
    assert later == RateLimited("requests_per_minute", 1, 0, refused.retry_after_s - 10, refused.retry_after_s - 10)
    assert limiter.asked == 2
    assert isinstance(await desk.open(world.subject(replace(limits, requests_per_minute=2)), Needs()), Reservation)
    assert isinstance(await desk.open(world.subject(limits, model="b3os/other"), Needs()), Reservation)
    assert limiter.asked == 4
    world.clock.wait(refused.retry_after_s - 10.5)  # exactly as the first was told
    assert isinstance(await desk.open(world.subject(replace(limits, requests_per_minute=2)), Needs()), Reservation)


async def test_waiting_exactly_as_told_by_a_refusal_of_the_node_s_own_is_enough(world: World, tmp_path: Path) -> None:
    limiter = CountingLimiter(world.limiter().store, clock_ms=world.clock)
    books = Books(limiter, Spool(tmp_path / "spool"), until_back=limiter.store.breaker.wait_until_closed)
    desk = Desk(limiter, books, waits=Waits(lambda: world.clock.now_ms / 1000))
    limits = Limits(requests_per_minute=1)
    async with await opened(desk, world.subject(limits)):
        pass
    assert isinstance(await desk.open(world.subject(limits), Needs()), RateLimited)
    world.clock.wait(7.25)
    told = await desk.open(world.subject(limits), Needs())
    assert isinstance(told, RateLimited)
    assert limiter.asked == 2
    world.clock.wait(told.retry_after_s)
    async with await opened(desk, world.subject(limits)):
        pass


async def test_whoever_is_out_of_tokens_or_money_is_refused_without_asking_redis_for_a_second(
    world: World, tmp_path: Path
) -> None:
    limiter = CountingLimiter(world.limiter().store, clock_ms=world.clock)
    books = Books(limiter, Spool(tmp_path / "spool"), until_back=limiter.store.breaker.wait_until_closed)
    desk = Desk(limiter, books, waits=Waits(lambda: world.clock.now_ms / 1000))
    least, cap = Needs(2, 18), SpendCap(5000, "day")
    limits = Limits(tokens_per_minute=500)
    by_tokens, by_cap = world.subject(limits), world.subject(cap=cap, key="key_2")
    async with await opened(desk, by_tokens), await opened(desk, by_cap):
        for subject, refusal in ((by_tokens, RateLimited), (by_cap, CapReached)):
            limiter.asked = 0
            for _ in range(3):
                other = replace(subject, request_id=new_request_id(world.clock.now_ms))
                assert isinstance(await desk.open(other, least), refusal)
            assert limiter.asked == 1
            async with await opened_for(desk, replace(subject, request_id=new_request_id(1)), Needs()):
                assert limiter.asked == 2  # a count of tokens
    for subject in (by_tokens, by_cap):
        other = replace(subject, request_id=new_request_id(world.clock.now_ms))
        assert not isinstance(await desk.open(other, least), Reservation)  # what came back is not known yet
    world.clock.wait(1)
    for subject in (by_tokens, by_cap):
        async with await opened_for(desk, replace(subject, request_id=new_request_id(world.clock.now_ms)), least):
            pass


async def test_a_request_that_another_node_may_have_let_in_is_asked_about(world: World, tmp_path: Path) -> None:
    limits = Limits(requests_per_minute=1)
    taken = world.subject(limits)
    hold_of(await world.limiter().admit(taken, Needs(2, 18)))
    desk = desk_of(world, tmp_path / "spool")
    assert isinstance(await desk.open(world.subject(limits), Needs(2, 18)), RateLimited)
    assert isinstance(await desk.open(taken, Needs(2, 18)), RateLimited)  # as the node knows it
    again = await desk.open(taken, Needs(2, 18), attempt=2)
    assert isinstance(again, Reservation)
    async with again:
        pass
    assert await world.running() == 0


async def test_a_client_that_leaves_in_the_middle_pays_to_the_last_token_generated(world: World, desk: Desk) -> None:
    subject = world.subject()
    with pytest.raises(ConnectionResetError):
        await Course(output_tokens=20, status=200).run(desk, subject, ConnectionResetError())
    record = await ended(world, subject)
    assert (record.outcome, record.status, record.output_tokens) == ("client_gone", 200, 20)


async def test_an_engine_that_dies_in_the_middle_is_billed_for_what_was_generated(world: World, desk: Desk) -> None:
    subject = world.subject()
    with pytest.raises(ApiError):
        await Course(output_tokens=7, status=200).run(desk, subject, ApiError(INTERNAL, "gone"))
    record = await ended(world, subject)
    assert (record.outcome, record.status, record.error_code, record.output_tokens) == ("failed", 200, "internal", 7)


async def test_a_fault_of_ours_before_the_prompt_was_computed_bills_nothing(world: World, desk: Desk) -> None:
    subject = world.subject()
    with pytest.raises(ZeroDivisionError):
        await Course().run(desk, subject, ZeroDivisionError())
    record = await ended(world, subject)
    assert (record.outcome, record.status, record.error_code, record.cost_nano_usd) == ("failed", 500, "internal", 0)


async def test_a_refused_request_has_no_reservation(world: World, desk: Desk) -> None:
    limits = Limits(concurrent_requests=1)
    async with await opened(desk, world.subject(limits)):
        assert await desk.open(world.subject(limits), Needs()) == ConcurrencyLimited(1, 1)
    async with await opened(desk, world.subject(limits)):
        pass


async def test_the_first_token_is_told_to_redis_at_once(world: World, tmp_path: Path) -> None:
    desk = desk_of(world, tmp_path / "spool", renew_every_s=3600)
    async with await opened(desk, subject := world.subject()) as reservation:
        reservation.follow(Usage(100, output_tokens=1))
        reservation.note_prefilled()
        await until(lambda: told_output(world, subject), "1")


async def test_a_running_request_is_renewed_with_its_counts(world: World, tmp_path: Path) -> None:
    desk = desk_of(world, tmp_path / "spool", renew_every_s=0.01)
    async with await opened(desk, subject := world.subject()) as reservation:
        reservation.follow(usage := Usage(100))
        for output in (5, 9):
            usage.output_tokens = output
            await until(lambda: told_output(world, subject), str(output))
    await desk.aclose()


async def told_output(world: World, subject: Subject) -> object:
    return await world.redis.hget(names.reservation_key(world.org, subject.request_id), "output")


async def until(read: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Wait for what happens in the background."""
    async with asyncio.timeout(60):
        while await read() != wanted:
            await asyncio.sleep(0.005)


class SlowLimiter:
    """A limiter whose every answer waits for a sign."""

    def __init__(self, world: World) -> None:
        self._inner = world.limiter()
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.store = self._inner.store

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def slow(*arguments: object) -> object:
            self.asked.set()
            await self.may_answer.wait()
            answer: object = await getattr(self._inner, name)(*arguments)
            return answer

        return slow

    async def renew(self, hold: object, progress: Progress) -> Renewal:
        """Not slow."""
        return await self._inner.renew(hold, progress)  # type: ignore[arg-type]


async def test_a_client_that_leaves_while_it_is_let_in_leaves_nothing_behind(world: World, tmp_path: Path) -> None:
    slow = SlowLimiter(world)
    desk = Desk(slow, Books(slow, Spool(tmp_path / "spool"), until_back=asyncio.Event().wait))  # type: ignore[arg-type]
    opening = asyncio.create_task(desk.open(subject := world.subject(), Needs(500, 5000)))
    await slow.asked.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    slow.may_answer.set()
    await desk.aclose()
    record = await ended(world, subject)
    assert (record.outcome, record.cost_nano_usd) == ("client_gone", 0)


async def test_a_bill_waits_for_no_renewal_that_is_on_its_way(world: World, tmp_path: Path) -> None:
    limiter = world.limiter()
    began, may_end, ended_by = asyncio.Event(), asyncio.Event(), list[str]()

    class Hanging(RedisLimiter):
        async def renew(self, hold: Hold, progress: Progress) -> Renewal:
            began.set()
            try:
                await may_end.wait()
                ended_by.append("itself")
            except asyncio.CancelledError:
                ended_by.append("cancellation")
                raise
            return await limiter.renew(hold, progress)

    hanging = Hanging(limiter.store, clock_ms=world.clock)
    until_back = limiter.store.breaker.wait_until_closed
    desk = Desk(hanging, Books(hanging, Spool(tmp_path / "spool"), until_back=until_back))
    subject = world.subject()
    async with await opened(desk, subject) as reservation:
        reservation.follow(Usage(100, output_tokens=20))
        reservation.note_prefilled()
        await began.wait()
    assert (await ended(world, subject)).output_tokens == 20
    assert not ended_by
    may_end.set()
    await desk.aclose()
    assert ended_by == ["itself"]
    assert not await world.redis.zscore(names.leases_key(world.org), subject.request_id)


async def test_a_cancellation_can_not_stop_a_bill(world: World, tmp_path: Path) -> None:
    slow = SlowLimiter(world)
    desk = Desk(slow, Books(slow, Spool(tmp_path / "spool"), until_back=asyncio.Event().wait))  # type: ignore[arg-type]
    slow.may_answer.set()
    subject = world.subject()

    is_over = asyncio.Event()

    async def serve() -> None:
        async with await opened(desk, subject) as reservation:
            reservation.follow(Usage(100, output_tokens=20))
            slow.may_answer.clear()
            slow.asked.clear()
            is_over.set()

    serving = asyncio.create_task(serve())
    await is_over.wait()
    await slow.asked.wait()  # in the middle of its bill
    for _ in range(3):
        serving.cancel()
        await asyncio.sleep(0)
    assert not serving.done()
    slow.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert (await ended(world, subject)).cost_nano_usd == COST
    await desk.aclose()
