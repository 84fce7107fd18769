"""A bill was booked, and its node died before anybody heard the answer: a later attempt is billed in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

import pytest

from node.limits import names
from node.limits.bill import Ending, build_settlement
from node.limits.limiter import (
    Adjusted,
    Admitted,
    AlreadySettled,
    Amended,
    Charged,
    Hold,
    Limits,
    Lost,
    Needs,
    Progress,
    Renewed,
    Settled,
    SpendCap,
)
from node.limits.redis_limiter import FREE_DONE_MS
from node.limits.sweeper import Sweeper
from shared.usage import UsageReader
from tests.integration.limits.parts import EVERYTHING, World, bill, hold_of

ONE_A_MINUTE = Limits(requests_per_minute=1, tokens_per_minute=1000, concurrent_requests=1)
CAP = SpendCap(100_000, "month")
LESS = Progress(has_prefilled=True, input_tokens=100, output_tokens=7)
COST, COST_OF_LESS = 100 * 3 + 20 * 15, 100 * 3 + 7 * 15


async def booked(world: World, progress: Progress = EVERYTHING, *, status: int = 200) -> Hold:
    """The first attempt's."""
    hold = hold_of(await world.limiter().admit(world.subject(ONE_A_MINUTE, CAP), Needs(500, 5000)))
    assert await world.limiter().settle(bill(hold, progress, status=status)) == Settled()
    return hold


async def again(world: World, first: Hold, attempt: int = 2) -> Hold:
    """Let in at another node."""
    admission = await world.limiter().admit(replace(first.subject, node="n2"), Needs(500, 5000), attempt)
    assert isinstance(admission, Admitted), admission
    assert admission.remaining is None  # it is one request still
    return admission.hold


async def entries(world: World) -> Sequence[tuple[str, str]]:
    return [(each["outcome"], each["cost_nano_usd"]) for each in await world.ledger()]


async def requests_used(world: World) -> int:
    day = date(2026, 11, 30)
    rows = await UsageReader(world.redis).fetch_days(world.org, day, day)
    return sum(row.requests for row in rows)


async def test_the_later_attempt_is_billed_in_the_place_of_the_first(world: World) -> None:
    first = await booked(world)
    second = await again(world, first)
    assert await world.spent() == (COST, 5000)
    assert await world.limiter().renew(first, EVERYTHING) == AlreadySettled()
    assert await world.limiter().settle(bill(first)) == AlreadySettled()  # from its spool
    assert await world.limiter().renew(second, LESS) == Renewed()
    assert await world.limiter().adjust(second, Needs(400, 4000)) == Adjusted()
    assert await world.limiter().settle(bill(second, LESS)) == Amended()
    for hold in (first, second):
        assert await world.limiter().settle(bill(hold)) == AlreadySettled()
    assert await entries(world) == [
        ("finished", str(COST)),
        ("reversed", str(-COST)),
        ("finished", str(COST_OF_LESS)),
    ]
    assert await world.spent() == (COST_OF_LESS, 0)
    assert await requests_used(world) == 1
    assert await world.running() == 0
    assert sum((await world.meter("requests")).values()) == 1
    assert sum((await world.meter("tokens")).values()) == 120 + 107  # two nodes did compute
    record = await world.log.fetch(world.org, first.subject.request_id)
    assert record is not None
    assert (record.outcome, record.node, record.output_tokens) == ("finished", "n2", 7)


@pytest.mark.parametrize("attempt", [1, 0])
async def test_no_attempt_but_a_later_one_may(world: World, attempt: int) -> None:
    first = await booked(world)
    assert await world.limiter().admit(first.subject, Needs(), attempt) == AlreadySettled()


async def test_on_another_day_a_bill_stays(world: World) -> None:
    first = await booked(world)
    world.clock.wait(12 * 3600)
    assert await world.limiter().admit(first.subject, Needs(), 2) == AlreadySettled()


async def test_where_the_later_node_dies_too_its_last_word_counts(world: World) -> None:
    second = await again(world, await booked(world))
    await world.limiter().renew(second, LESS)
    world.clock.wait(31)
    limiter = world.limiter()
    assert await Sweeper(limiter.store, limiter, "n9", clock_ms=world.clock)._sweep_some([world.org]) == 1
    assert await world.spent() == (COST_OF_LESS, 0)
    assert await world.limiter().settle(bill(second)) == Amended()  # it lives after all
    assert await world.spent() == (COST, 0)
    assert [outcome for outcome, _ in await entries(world)] == [
        "finished",
        "reversed",
        "abandoned",
        "reversed",
        "finished",
    ]
    assert await requests_used(world) == 1


async def test_a_third_may_answer_what_was_swept(world: World) -> None:
    first = await booked(world)
    second = await again(world, first)
    world.clock.wait(31)
    limiter = world.limiter()
    await Sweeper(limiter.store, limiter, "n9", clock_ms=world.clock)._sweep_some([world.org])
    third = await again(world, first, 3)
    assert await world.limiter().settle(bill(second)) == AlreadySettled()
    assert await world.limiter().settle(bill(third, LESS)) == Amended()
    assert await world.spent() == (COST_OF_LESS, 0)


async def test_what_goes_back_leaves_the_first_bill_and_its_record(world: World) -> None:
    first = await booked(world)
    before = await world.log.fetch(world.org, first.subject.request_id)
    await world.limiter().release(await again(world, first))
    assert await world.log.fetch(world.org, first.subject.request_id) == before
    assert (await world.spent(), await world.running()) == ((COST, 0), 0)
    assert sum((await world.meter("requests")).values()) == 1
    await again(world, first)


async def test_an_admission_that_was_not_heard_leaves_the_first_bill(world: World) -> None:
    first = await booked(world)
    unheard = replace(first, owner="2f")
    nothing = replace(bill(unheard, Progress()), is_certain=False)
    assert await world.limiter().settle(nothing) == AlreadySettled()
    assert await world.spent() == (COST, 0)
    assert await world.limiter().admit(first.subject, Needs(), 2) == AlreadySettled()  # should it come yet
    assert await world.limiter().settle(bill(await again(world, first, 3), LESS)) == Amended()


async def test_an_admission_that_was_not_heard_and_comes_late_takes_nothing_from_the_attempt_that_runs(
    world: World,
) -> None:
    first = hold_of(await world.limiter().admit(world.subject(ONE_A_MINUTE, CAP), Needs(500, 5000)))
    unheard = replace(first, owner="2f")
    nothing = replace(bill(unheard, Progress()), is_certain=False)
    assert await world.limiter().settle(nothing) == AlreadySettled()
    assert await world.limiter().admit(first.subject, Needs(), 2) == AlreadySettled()
    assert await world.limiter().renew(first, LESS) == Renewed()
    assert await world.limiter().settle(bill(first)) == Settled()
    assert await world.limiter().admit(first.subject, Needs(), 2) == AlreadySettled()  # nor from its bill
    assert await entries(world) == [("finished", str(COST))]
    assert await world.limiter().settle(bill(await again(world, first, 3), LESS)) == Amended()


async def test_an_admission_that_was_not_heard_takes_no_owner_s_word_from_it(world: World) -> None:
    """The first node was taken for dead and swept; nobody answers in its place, and it lives."""
    first = hold_of(await world.limiter().admit(world.subject(ONE_A_MINUTE, CAP), Needs(500, 5000)))
    world.clock.wait(31)
    limiter = world.limiter()
    assert await Sweeper(limiter.store, limiter, "n9", clock_ms=world.clock)._sweep_some([world.org]) == 1
    nothing = replace(bill(replace(first, owner="2f"), Progress()), is_certain=False)
    assert await world.limiter().settle(nothing) == AlreadySettled()
    assert await world.limiter().settle(bill(first)) == Amended()
    assert await world.spent() == (COST, 0)
    assert await world.limiter().admit(first.subject, Needs(), 2) == AlreadySettled()


async def test_a_bar_outlives_what_goes_back(world: World) -> None:
    subject = world.subject(ONE_A_MINUTE, CAP)
    first = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    nothing = replace(bill(replace(first, owner="2f"), Progress()), is_certain=False)
    assert await world.limiter().settle(nothing) == AlreadySettled()
    await world.limiter().release(first)
    assert await world.limiter().admit(subject, Needs(500, 5000), 2) == AlreadySettled()
    assert (await world.spent(), await world.running()) == ((0, 0), 0)
    third = hold_of(await world.limiter().admit(subject, Needs(500, 5000), 3))
    assert await world.limiter().settle(bill(third)) == Settled()


async def test_a_bar_alone_refuses_no_later_attempt_nor_an_earlier_one_s_bill(world: World) -> None:
    first = hold_of(await world.limiter().admit(world.subject(ONE_A_MINUTE, CAP), Needs(500, 5000)))
    await world.redis.delete(names.reservation_key(world.org, first.subject.request_id))
    nothing = replace(bill(replace(first, owner="2f"), Progress()), is_certain=False)
    assert await world.limiter().settle(nothing) == Settled(was_known=False)
    assert await world.limiter().adjust(first, Needs(400, 4000)) == Lost()
    assert await world.limiter().renew(first, LESS) == Renewed()
    assert await world.limiter().admit(first.subject, Needs(), 2) == AlreadySettled()
    assert await world.limiter().settle(bill(first)) == Settled()
    assert await world.limiter().settle(bill(await again(world, first, 3), LESS)) == Amended()


async def test_a_void_bill_of_the_day_after_ends_what_was_taken_over(world: World) -> None:
    first = await booked(world)
    await again(world, first)
    world.clock.wait(12 * 3600)
    third = await again(world, first, 3)
    unheard = replace(bill(replace(third, admitted_ms=world.clock.now_ms), Progress()), is_certain=False)
    assert await world.limiter().settle(unheard) == Amended()
    assert (await world.spent(), await world.running()) == ((0, 0), 0)


async def test_a_void_bill_of_the_day_after_is_of_the_day_on_which_its_own_reservation_was_swept(
    world: World,
) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(ONE_A_MINUTE, CAP), Needs(500, 5000)))
    assert await world.limiter().renew(hold, LESS) == Renewed()
    world.clock.wait(31)
    limiter = world.limiter()
    assert await Sweeper(limiter.store, limiter, "n9", clock_ms=world.clock)._sweep_some([world.org]) == 1
    world.clock.wait(12 * 3600)
    unheard = replace(bill(replace(hold, admitted_ms=world.clock.now_ms), Progress()), is_certain=False)
    assert await world.limiter().settle(unheard) == Amended()
    assert await world.spent() == (0, 0)
    assert await world.spent("2026-11-30") == (0, 0)


async def test_a_sweeper_bills_nothing_that_went_back_while_it_looked(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(ONE_A_MINUTE, CAP), Needs(500, 5000)))
    world.clock.wait(31)
    await world.limiter().release(hold)
    swept = replace(bill(hold, LESS), is_last_word=False)
    assert await world.limiter().settle(swept) == AlreadySettled()
    assert (await world.spent(), await entries(world)) == ((0, 0), [])


async def test_an_attempt_that_goes_back_takes_no_owner_s_word_from_it(world: World) -> None:
    first = hold_of(await world.limiter().admit(world.subject(ONE_A_MINUTE, CAP), Needs(500, 5000)))
    world.clock.wait(31)
    limiter = world.limiter()
    await Sweeper(limiter.store, limiter, "n9", clock_ms=world.clock)._sweep_some([world.org])
    await world.limiter().release(await again(world, first))
    assert await world.limiter().settle(bill(first)) == Amended()
    assert await world.spent() == (COST, 0)


async def test_what_a_later_attempt_came_to_takes_the_place_of_the_bill_nothing_included(world: World) -> None:
    second = await again(world, await booked(world))
    refusal = build_settlement(second, Progress(), Ending("refused", 400), 0)
    assert await world.limiter().settle(refusal) == Amended()
    assert await world.spent() == (0, 0)
    assert (await requests_used(world), await world.running()) == (0, 0)
    record = await world.log.fetch(world.org, second.subject.request_id)
    assert record is not None
    assert (record.outcome, record.cost_nano_usd) == ("refused", 0)


async def test_what_the_first_took_of_limits_and_cap_refuses_no_later_attempt(world: World) -> None:
    narrow, cap = Limits(tokens_per_minute=500, concurrent_requests=1), SpendCap(5000, "month")
    first = hold_of(await world.limiter().admit(world.subject(narrow, cap), Needs(500, 5000)))
    await world.limiter().settle(bill(first))
    hold_of(await world.limiter().admit(world.subject(narrow), Needs(380)))
    second = await again(world, first)
    assert await world.limiter().settle(bill(second)) == Amended()
    assert await world.spent() == (COST, 0)


async def test_another_model_s_sums_are_not_taken_from(world: World) -> None:
    first = await booked(world)
    elsewhere = replace(first.subject, model="b3os/other")
    assert await world.limiter().admit(elsewhere, Needs(), 2) == AlreadySettled()


async def test_a_free_bill_is_remembered_for_as_long_as_its_successor_may_take(world: World) -> None:
    first = await booked(world, Progress())
    done = names.done_key(world.org, first.subject.request_id)
    assert await world.redis.pttl(done) <= FREE_DONE_MS
    second = await again(world, first)
    assert await world.redis.pttl(done) > FREE_DONE_MS
    assert await world.limiter().settle(bill(second, Progress())) == Amended()
    assert await world.redis.pttl(done) > FREE_DONE_MS  # an earlier one's bill may lie in a spool


async def test_an_earlier_attempt_changes_nothing_of_a_later_one_s_reservation(world: World) -> None:
    limits = Limits(tokens_per_minute=1000, image_bytes_per_minute=1000)
    subject = world.subject(limits, CAP)
    first = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    second = hold_of(await world.limiter().admit(subject, Needs(500, 5000), 2))
    assert await world.limiter().adjust(first, Needs(1, 1)) == AlreadySettled()
    assert await world.limiter().charge_images(first, 900) == Charged()
    assert await world.spent() == (0, 5000)
    assert await world.meter("images") == {}
    assert await world.limiter().adjust(second, Needs(400, 4000)) == Adjusted()
    assert await world.limiter().charge_images(second, 1000) == Charged()


async def test_a_refusal_that_nobody_heard_counts_no_request_less(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(ONE_A_MINUTE, CAP), Needs(500, 5000)))
    refusal = build_settlement(hold, Progress(), Ending("refused", 400), 0)
    assert await world.limiter().settle(refusal) == Settled()
    assert await requests_used(world) == 0
    assert await world.limiter().settle(bill(await again(world, hold), LESS)) == Amended()
    assert await requests_used(world) == 1
    assert await entries(world) == [("finished", str(COST_OF_LESS))]


async def test_a_reservation_that_was_lost_replaces_the_first_bill_all_the_same(world: World) -> None:
    first = await booked(world)
    second = await again(world, first)
    await world.redis.delete(names.reservation_key(world.org, first.subject.request_id))
    assert await world.limiter().renew(second, LESS) == AlreadySettled()
    assert await world.limiter().settle(bill(second, LESS)) == Amended()
    settled, _ = await world.spent()
    assert settled == COST_OF_LESS
