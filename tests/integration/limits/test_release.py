"""An admission that is undone, so that another node may be asked the same, on a real Redis."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from node.limits import names
from node.limits.books import Books
from node.limits.limiter import (
    Adjusted,
    AlreadySettled,
    Hold,
    Limits,
    Needs,
    Progress,
    Renewal,
    Settled,
    SpendCap,
    Subject,
)
from node.limits.redis_limiter import RedisLimiter
from node.limits.settlement import Desk, Reservation
from node.limits.spool import Spool
from shared.errors import BACKEND_UNAVAILABLE, ApiError
from shared.hop import NOT_STARTED
from tests.integration.limits.parts import World, bill, hold_of
from tests.integration.limits.test_lifetime import desk, opened

__all__ = ["desk"]
LIMITS = Limits(requests_per_minute=5, tokens_per_minute=1000, concurrent_requests=1)
CAP = SpendCap(10_000, "month")


async def traces(world: World, subject: Subject) -> dict[str, object]:
    """Whatever an admission leaves."""
    return {
        "running": await world.running(),
        "spent": [await world.spent(period) for period in ("2026-11-30", "2026-11", "total")],
        "meters": [await world.meter(name) for name in ("requests", "tokens")],
        "record": await world.log.fetch(world.org, subject.request_id),
        "listed": [record.id for record in (await world.log.fetch_page(world.org, cursor=None, limit=10)).records],
        "ledger": await world.ledger(),
        "keys": await world.redis.exists(
            names.reservation_key(world.org, subject.request_id), names.done_key(world.org, subject.request_id)
        ),
        "sums": await world.redis.exists(*names.spend_keys(subject, world.clock.now_ms)),
    }


async def test_nothing_is_left_of_it(world: World) -> None:
    subject = world.subject(LIMITS, CAP)
    before = await traces(world, subject)
    hold = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    assert await traces(world, subject) != before
    await world.limiter().release(hold)
    assert await traces(world, subject) == before


async def test_another_node_may_be_asked_the_same(world: World) -> None:
    subject = world.subject(LIMITS, CAP)
    await world.limiter().release(hold_of(await world.limiter().admit(subject, Needs(500, 5000))))
    again = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    assert await world.limiter().settle(bill(again)) == Settled()
    assert [entry["request"] for entry in await world.ledger()] == [subject.request_id]


async def test_who_has_been_replaced_releases_nothing(world: World) -> None:
    subject = world.subject(LIMITS, CAP)
    early = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    late = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    before = await traces(world, subject)
    await world.limiter().release(early)
    assert await traces(world, subject) == before
    assert await world.limiter().settle(bill(late)) == Settled()


async def test_a_release_after_the_bill_changes_nothing(world: World) -> None:
    subject = world.subject(LIMITS, CAP)
    hold = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    await world.limiter().settle(bill(hold))
    before = await traces(world, subject)
    await world.limiter().release(hold)
    assert await traces(world, subject) == before


async def test_what_has_left_the_window_is_no_credit(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(LIMITS, CAP), Needs(500, 5000)))
    before = [await world.meter(name) for name in ("requests", "tokens")]
    world.clock.wait(70)
    await world.limiter().release(hold)
    assert [await world.meter(name) for name in ("requests", "tokens")] == before


async def test_what_was_reserved_from_the_start_and_grew_since_goes_back_whole(world: World) -> None:
    subject = world.subject(LIMITS, CAP)
    before = await traces(world, subject)
    hold = hold_of(await world.limiter().admit(subject, Needs(2, 18)))
    world.clock.wait(7)
    assert await world.limiter().adjust(hold, Needs(500, 5000)) == Adjusted()
    await world.limiter().release(hold)
    assert await traces(world, subject) == before


async def test_what_was_found_to_cost_nothing_leaves_no_sum_of_nothing(world: World) -> None:
    subject = world.subject(LIMITS, CAP)
    before = await traces(world, subject)
    hold = hold_of(await world.limiter().admit(subject, Needs(2, 18)))
    assert await world.limiter().adjust(hold, Needs(2, 0)) == Adjusted()
    await world.limiter().release(hold)
    assert await traces(world, subject) == before


async def test_a_request_that_was_not_limited_gives_nobody_s_place_in_the_minute_back(world: World) -> None:
    hold_of(await world.limiter().admit(world.subject(LIMITS), Needs()))
    before = await world.meter("requests")
    await world.limiter().release(hold_of(await world.limiter().admit(world.subject(), Needs())))
    assert await world.meter("requests") == before


async def test_a_bill_of_an_attempt_that_was_not_heard_has_no_say_once_another_took_it_over(world: World) -> None:
    subject = world.subject(LIMITS, CAP)
    unheard = hold_of(await world.limiter().admit(subject, Needs(2, 18)))
    heard = hold_of(await world.limiter().admit(subject, Needs(2, 18)))
    void = replace(bill(unheard, Progress()), is_certain=False)
    assert await world.limiter().settle(void) == AlreadySettled()
    before = await traces(world, subject)
    await world.limiter().release(unheard)
    assert await traces(world, subject) == before
    await world.limiter().release(heard)
    left = await traces(world, subject)
    assert (left["running"], left["keys"]) == (0, 1)  # that it is over, should its admission come yet


async def end(reservation: Reservation, error: ApiError) -> None:
    """With what a request hears."""
    try:
        async with reservation:
            raise error
    except ApiError:
        pass


async def test_what_goes_back_unbegun_is_released_and_not_billed(world: World, desk: Desk) -> None:
    subject = world.subject(LIMITS, CAP)
    before = await traces(world, subject)
    error = ApiError(BACKEND_UNAVAILABLE, "is shutting down", headers={NOT_STARTED: "1"})
    await end(await opened(desk, subject), error)
    assert await traces(world, subject) == before


async def test_a_renewal_that_is_on_its_way_does_not_write_again_what_was_released(
    world: World, tmp_path: Path
) -> None:
    limiter, began, may_go_on = world.limiter(), asyncio.Event(), asyncio.Event()

    class Slow(RedisLimiter):
        async def renew(self, hold: Hold, progress: Progress) -> Renewal:
            began.set()
            await may_go_on.wait()
            return await limiter.renew(hold, progress)

        async def release(self, hold: Hold) -> None:
            may_go_on.set()
            await limiter.release(hold)

    slow = Slow(limiter.store, clock_ms=world.clock)
    desk = Desk(
        slow,
        Books(slow, Spool(tmp_path / "spool"), until_back=limiter.store.breaker.wait_until_closed),
        renew_every_s=0.001,
    )
    subject = world.subject(LIMITS, CAP)
    before = await traces(world, subject)
    reservation = await opened(desk, subject)

    async def hand_back() -> None:
        async with reservation:
            await began.wait()
            raise ApiError(BACKEND_UNAVAILABLE, "is shutting down", headers={NOT_STARTED: "1"})

    ending = asyncio.create_task(hand_back())
    await began.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    may_go_on.set()
    with pytest.raises(ApiError):
        await ending
    await desk.aclose()
    assert await traces(world, subject) == before


async def test_any_other_failure_is_settled(world: World, desk: Desk) -> None:
    subject = world.subject(LIMITS, CAP)
    await end(await opened(desk, subject), ApiError(BACKEND_UNAVAILABLE, "is restarting"))
    assert await world.redis.exists(names.done_key(world.org, subject.request_id))
