"""What is booked, and that it is booked once, on a real Redis."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import date

import pytest

from node.limits import names
from node.limits.bill import Ending, build_settlement
from node.limits.limiter import (
    AlreadySettled,
    Amended,
    Hold,
    Limits,
    Needs,
    Progress,
    Renewed,
    Settled,
    SpendCap,
    StillAlive,
    TooOld,
)
from node.limits.redis_limiter import DONE_MS, FREE_DONE_MS, LEASE_MS, MOST_FREE, RedisLimiter
from node.limits.store import Store, load_script
from node.limits.sweeper import ORGS_AT_ONCE, Sweeper
from shared.org_keys import record_ids_key, record_key, refused_ids_key, refused_key
from shared.usage import UsageReader, UsageRow
from tests.integration.limits.parts import EVERYTHING, NOON_MS, PRICE, World, bill, hold_of

COST = 100 * 3 + 20 * 15
NOTHING = Progress()
WELL_WITHIN_S = 60


def sweeper(world: World, node_id: str = "n9") -> Sweeper:
    """On the world's clock. Its turns end at once, for the next test's sake."""
    limiter = world.limiter()
    return Sweeper(limiter.store, limiter, node_id, sweep_every_s=0, clock_ms=world.clock)


async def sweep(world: World) -> None:
    """Until no ended lease is left: like all that asks Redis, one sweep may go without an answer, and the next comes.

    All nodes of all tests share the turn, so this takes it from whoever has it.
    """
    ended = (names.leases_key(world.org), "-inf", f"({world.clock()}")
    async with asyncio.timeout(WELL_WITHIN_S):
        while True:
            await world.redis.delete(names.SWEEPER)
            await sweeper(world).sweep()
            if not await world.redis.zcount(*ended):
                return


async def test_a_bill_is_booked_everywhere_at_once(world: World) -> None:
    subject = world.subject(Limits(tokens_per_minute=1000), SpendCap(10_000, "month"))
    hold = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    assert await world.limiter().settle(bill(hold, image_bytes=77)) == Settled()
    assert await world.ledger() == [
        {
            "request": subject.request_id,
            "outcome": "finished",
            "key": "key_1",
            "project": "main",
            "model": "b3os/test",
            "node": "n1",
            "price": "in3-out15",
            "admitted_ms": str(NOON_MS),
            "input_tokens": "100",
            "output_tokens": "20",
            "cached_tokens": "64",
            "image_bytes": "77",
            "cost_nano_usd": str(COST),
        }
    ]
    for period in ("2026-11-30", "2026-11", "total"):
        assert await world.spent(period) == (COST, 0)
    day = date(2026, 11, 30)
    usage = await UsageReader(world.redis).fetch_days(world.org, day, day)
    assert usage == [UsageRow("2026-11-30", "key_1", "b3os/test", 1, 100, 20, 64, 77, COST)]
    record = await world.log.fetch(world.org, subject.request_id)
    assert record is not None
    assert (record.outcome, record.status, record.stop_reason, record.cost_nano_usd) == (
        "finished",
        200,
        "end_turn",
        COST,
    )
    assert await world.running() == 0
    assert not await world.redis.exists(names.reservation_key(world.org, subject.request_id))


async def test_of_many_settlements_one_is_booked(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs(500, 5000)))
    bookings = await asyncio.gather(*(world.limiter().settle(bill(hold)) for _ in range(20)))
    assert Counter(map(type, bookings)) == {Settled: 1, AlreadySettled: 19}
    assert len(await world.ledger()) == 1
    assert await world.spent() == (COST, 0)


async def test_a_bill_whose_reservation_was_lost_is_booked_once(world: World) -> None:
    subject = world.subject(Limits(tokens_per_minute=1000, requests_per_minute=5))
    hold = hold_of(await world.limiter().admit(subject, Needs(500)))
    await world.redis.delete(*[key async for key in world.redis.scan_iter(f"b3os:{{{world.org}}}:*", count=1000)])
    world.clock.wait(10)
    assert await world.limiter().settle(bill(hold)) == Settled(was_known=False)
    assert await world.limiter().settle(bill(hold)) == AlreadySettled()
    assert await world.spent() == (COST, 0)
    assert len(await world.ledger()) == 1
    slot = NOON_MS // 5000  # the minute in which it ran counts it again
    assert (await world.meter("tokens"), await world.meter("requests")) == ({slot: 120}, {slot: 1})


async def test_a_lost_reservation_s_bill_after_its_minute_touches_no_meter(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(Limits(tokens_per_minute=1000)), Needs(500)))
    await world.redis.delete(names.reservation_key(world.org, hold.subject.request_id))
    world.clock.wait(65)
    assert await world.limiter().settle(bill(hold)) == Settled(was_known=False)
    assert await world.meter("tokens") == {NOON_MS // 5000: 500}  # out of the window already


async def test_a_bill_belongs_to_the_month_and_day_of_its_admission(world: World) -> None:
    world.clock.wait(12 * 3600 - 1)
    hold = hold_of(await world.limiter().admit(world.subject(), Needs(cost_nano_usd=9)))
    world.clock.wait(3600)
    await world.limiter().settle(bill(hold))
    assert len(await world.ledger("2026-11")) == 1
    assert await world.spent("2026-11-30") == (COST, 0)
    assert await world.spent("2026-12") == (0, 0)


async def test_a_bill_too_old_to_be_known_as_booked_is_not_booked(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    await world.limiter().settle(bill(hold))
    await world.redis.delete(names.done_key(world.org, hold.subject.request_id))  # as its expiry does
    world.clock.wait(DONE_MS / 1000 + 1)
    assert await world.limiter().settle(bill(hold)) == TooOld()
    assert len(await world.ledger()) == 1


async def test_a_dead_node_s_request_is_billed_to_its_last_renewal(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(cap=SpendCap(9999, "month")), Needs(500, 5000)))
    assert await world.limiter().renew(hold, EVERYTHING) == Renewed()
    world.clock.wait(LEASE_MS / 1000)
    await sweep(world)
    assert await world.ledger() == []
    world.clock.wait(0.001)
    await sweep(world)
    await sweep(world)
    assert [(each["outcome"], each["cost_nano_usd"]) for each in await world.ledger()] == [("abandoned", str(COST))]
    assert await world.spent() == (COST, 0)
    record = await world.log.fetch(world.org, hold.subject.request_id)
    assert record is not None
    assert (record.outcome, record.status, record.output_tokens) == ("abandoned", None, 20)


async def test_a_node_that_died_before_the_prompt_was_computed_bills_nothing_and_frees_all(world: World) -> None:
    limits = Limits(tokens_per_minute=500)
    hold_of(await world.limiter().admit(world.subject(limits), Needs(500, 5000)))
    world.clock.wait(31)
    await sweep(world)
    assert await world.spent() == (0, 0)
    assert await world.ledger() == []
    hold_of(await world.limiter().admit(world.subject(limits), Needs(500)))


async def test_two_sweepers_and_the_owner_at_once_bill_once(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs(500, 5000)))
    await world.limiter().renew(hold, EVERYTHING)
    world.clock.wait(31)
    both = [sweeper(world, "n8"), sweeper(world, "n9")]
    await world.redis.delete(names.SWEEPER)
    await asyncio.gather(*(each.sweep() for each in both), world.limiter().settle(bill(hold)))
    assert await world.spent() == (COST, 0)
    assert sum(int(each["output_tokens"]) for each in await world.ledger()) == 20


async def test_only_one_node_sweeps_at_a_time(world: World) -> None:
    hold_of(await world.limiter().admit(world.subject(), Needs()))
    world.clock.wait(31)
    await world.redis.set(names.SWEEPER, "another", px=60_000)
    assert await sweeper(world).sweep() == 0
    await world.redis.delete(names.SWEEPER)
    assert await sweeper(world).sweep() >= 1


async def test_an_owner_taken_for_dead_has_the_last_word(world: World) -> None:
    limits = Limits(tokens_per_minute=1000)
    hold = hold_of(await world.limiter().admit(world.subject(limits), Needs(500, 5000)))
    await world.limiter().renew(hold, Progress(True, 100, 5, 64))
    world.clock.wait(31)
    await sweep(world)
    assert await world.spent() == (100 * 3 + 5 * 15, 0)
    assert await world.limiter().renew(hold, Progress(True, 100, 12, 64)) == AlreadySettled()
    assert await world.limiter().settle(bill(hold)) == Amended()
    assert await world.limiter().settle(bill(hold)) == AlreadySettled()
    assert await world.spent() == (COST, 0)
    entries = await world.ledger()
    assert [(each["outcome"], each["output_tokens"]) for each in entries] == [
        ("abandoned", "5"),
        ("reversed", "-5"),
        ("finished", "20"),
    ]
    assert sum(int(each["cost_nano_usd"]) for each in entries) == COST
    day = date(2026, 11, 30)
    assert await UsageReader(world.redis).fetch_days(world.org, day, day) == [
        UsageRow("2026-11-30", "key_1", "b3os/test", 1, 100, 20, 64, 0, COST)
    ]
    assert sum((await world.meter("tokens")).values()) == 120
    record = await world.log.fetch(world.org, hold.subject.request_id)
    assert record is not None
    assert record.outcome == "finished"


async def usage(world: World) -> list[UsageRow]:
    """Of the day that tests begin on."""
    day = date(2026, 11, 30)
    return await UsageReader(world.edge_redis).fetch_days(world.org, day, day)


async def test_a_free_request_is_counted_and_logged_and_writes_nothing_that_stays(world: World) -> None:
    subject = world.subject(Limits(requests_per_minute=5, tokens_per_minute=1000))
    hold = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    assert await world.limiter().settle(bill(hold, NOTHING, image_bytes=7)) == Settled()
    assert await world.limiter().settle(bill(hold, NOTHING, image_bytes=7)) == AlreadySettled()
    assert await world.ledger() == []
    assert await usage(world) == [UsageRow("2026-11-30", "key_1", "b3os/test", 1, image_bytes=7)]
    record = await world.log.fetch(world.org, subject.request_id)
    assert record is not None
    assert (record.outcome, record.status, record.image_bytes) == ("finished", 200, 7)
    assert [each.id for each in (await world.log.fetch_page(world.org)).records] == [subject.request_id]
    assert not await world.redis.exists(record_key(world.org, subject.request_id), record_ids_key(world.org))
    assert (await world.meter("requests"), await world.meter("tokens")) == ({NOON_MS // 5000: 1}, {})


async def test_what_was_refused_after_its_admission_is_no_use_of_the_service(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs(500, 5000)))
    refusal = Ending("refused", 400, "invalid_request")
    assert await world.limiter().settle(build_settlement(hold, NOTHING, refusal, 7)) == Settled()
    assert await usage(world) == [UsageRow("2026-11-30", "key_1", "b3os/test", 0, image_bytes=7)]
    record = await world.log.fetch(world.org, hold.subject.request_id)
    assert record is not None
    assert (record.outcome, record.status, record.error_code) == ("refused", 400, "invalid_request")


async def test_free_work_without_end_fills_nothing(world: World) -> None:
    async def work(count: int) -> int:
        for _ in range(count):
            hold = hold_of(await world.limiter().admit(world.subject(Limits(requests_per_minute=10**6)), Needs()))
            await world.limiter().settle(bill(hold, NOTHING))
            world.clock.wait(0.001)
        names_left = [name async for name in world.redis.scan_iter(f"b3os:{{{world.org}}}:*", count=1000)]
        done = {name for name in names_left if ":done:" in name}
        for name in done:
            assert 0 < await world.redis.pttl(name) <= FREE_DONE_MS == 600_000
        return len(names_left) - len(done)

    few = await work(MOST_FREE)
    assert await work(50) == few
    assert await world.redis.hlen(refused_key(world.org)) == MOST_FREE
    assert await world.redis.zcard(refused_ids_key(world.org)) == MOST_FREE
    assert [row.requests for row in await usage(world)] == [MOST_FREE + 50]


async def sums_of_keys(world: World) -> set[str]:
    """The names under which Redis has what keys have spent."""
    return {name async for name in world.redis.scan_iter(f"b3os:{{{world.org}}}:spend:*", count=1000)}


async def test_a_key_that_paid_for_nothing_leaves_no_sums_and_one_that_did_keeps_its_own(world: World) -> None:
    async def admit(key: str, cost_nano_usd: int = 5000) -> Hold:
        return hold_of(await world.limiter().admit(world.subject(key=key), Needs(500, cost_nano_usd)))

    await world.limiter().settle(bill(await admit("key_paid")))
    paid = await sums_of_keys(world)
    assert {name.split(":", 3)[3] for name in paid} == {
        f"key_paid:{period}" for period in ("2026-11-30", "2026-11", "total")
    }
    for key in ("key_paid", "key_left", "key_left_again"):
        await world.limiter().settle(bill(await admit(key), NOTHING))
        assert await sums_of_keys(world) == paid
    grown = await admit("key_grown", 0)
    await world.limiter().adjust(grown, Needs(500, 5000))
    await world.limiter().settle(bill(grown, NOTHING))
    await admit("key_of_a_dead_node")
    world.clock.wait(31)
    await sweep(world)
    assert await sums_of_keys(world) == paid
    first, second = await admit("key_twice"), await admit("key_twice")
    await world.limiter().settle(bill(first, NOTHING))
    assert await world.spent("total", "key_twice") == (0, 5000)  # the other one runs
    await world.limiter().settle(bill(second, NOTHING))
    assert await sums_of_keys(world) == paid


async def test_what_was_booked_and_reversed_leaves_no_sums(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs(500, 5000)))
    await world.limiter().renew(hold, EVERYTHING)
    world.clock.wait(31)
    await sweep(world)
    assert len(await sums_of_keys(world)) == 3
    assert await world.limiter().settle(bill(hold, NOTHING)) == Amended()
    assert await sums_of_keys(world) == set()


async def test_what_a_sweeper_had_for_free_is_paid_for_by_an_owner_who_was_alive(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(Limits(tokens_per_minute=1000)), Needs(500, 5000)))
    world.clock.wait(31)
    await sweep(world)
    record = await world.log.fetch(world.org, hold.subject.request_id)
    assert record is not None
    assert record.outcome == "abandoned"
    assert await world.redis.ttl(names.done_key(world.org, hold.subject.request_id)) > 86_400 * 39  # he may come late
    assert await world.limiter().settle(bill(hold)) == Amended()
    assert [(each["outcome"], each["output_tokens"]) for each in await world.ledger()] == [("finished", "20")]
    assert await usage(world) == [UsageRow("2026-11-30", "key_1", "b3os/test", 1, 100, 20, 64, 0, COST)]
    record = await world.log.fetch(world.org, hold.subject.request_id)
    assert record is not None
    assert record.outcome == "finished"
    assert not await world.redis.exists(refused_key(world.org), refused_ids_key(world.org))


async def test_what_a_sweeper_billed_and_was_free_is_reversed(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs(500, 5000)))
    await world.limiter().renew(hold, EVERYTHING)
    world.clock.wait(31)
    await sweep(world)
    assert await world.limiter().settle(bill(hold, NOTHING)) == Amended()
    assert [(each["outcome"], each["cost_nano_usd"]) for each in await world.ledger()] == [
        ("abandoned", str(COST)),
        ("reversed", str(-COST)),
    ]
    assert await world.spent() == (0, 0)
    assert await usage(world) == [UsageRow("2026-11-30", "key_1", "b3os/test", 1)]
    assert await world.redis.ttl(names.done_key(world.org, hold.subject.request_id)) > 86_400 * 39


async def test_a_free_bill_that_comes_when_its_marker_is_gone_is_dropped(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    await world.limiter().settle(bill(hold, NOTHING))
    await world.redis.delete(names.done_key(world.org, hold.subject.request_id))  # as its expiry does
    world.clock.wait(FREE_DONE_MS / 1000 + 1)
    assert await world.limiter().settle(bill(hold, NOTHING)) == AlreadySettled()
    world.clock.wait(DONE_MS / 1000)
    assert await world.limiter().settle(bill(hold, NOTHING)) == AlreadySettled()  # no operator is asked
    assert [row.requests for row in await usage(world)] == [1]


async def test_a_free_reservation_is_ended_however_late(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(cap=SpendCap(9, "month")), Needs(cost_nano_usd=9)))
    world.clock.wait(DONE_MS / 1000 + 1)
    assert await world.limiter().settle(bill(hold, NOTHING)) == Settled()
    assert await world.spent() == (0, 0)


async def test_a_bill_of_an_admission_that_may_never_have_been_keeps_it_from_being(world: World) -> None:
    """As it is where a frozen Redis has the admission in a socket, behind the bill."""
    limits = Limits(requests_per_minute=5, tokens_per_minute=1000, concurrent_requests=1)
    subject = world.subject(limits)
    unheard = replace(bill(Hold(subject, NOON_MS, "1f"), NOTHING), is_certain=False)
    assert await world.limiter().settle(unheard) == Settled(was_known=False)
    assert await world.limiter().settle(unheard) == AlreadySettled()
    assert await world.limiter().admit(subject, Needs(500, 5000)) == AlreadySettled()
    left = [name async for name in world.redis.scan_iter(f"b3os:{{{world.org}}}:*", count=1000)]
    assert left == [names.done_key(world.org, subject.request_id)]  # no count of it, no record, no meter


async def test_a_bill_of_an_attempt_that_was_not_heard_leaves_another_attempt_s_alone(world: World) -> None:
    subject = world.subject(Limits(concurrent_requests=1))
    first = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    unheard = replace(bill(replace(first, owner="0f"), NOTHING), is_certain=False)
    assert await world.limiter().settle(unheard) == AlreadySettled()
    assert await world.running() == 1
    assert await world.limiter().settle(bill(first)) == Settled()


async def test_an_attempt_that_took_over_after_midnight_gives_back_to_the_day_before(world: World) -> None:
    subject = world.subject(cap=SpendCap(5000, "day"))
    hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    world.clock.wait(12 * 3600)
    second = hold_of(await world.limiter().admit(subject, Needs(500, 5000)))
    unheard = replace(bill(replace(second, admitted_ms=world.clock.now_ms), NOTHING), is_certain=False)
    assert await world.limiter().settle(unheard) == Settled()
    for period in ("2026-11-30", "2026-12-01", "2026-11", "2026-12", "total"):
        assert await world.spent(period) == (0, 0)
    assert await world.running() == 0


async def test_a_sweeper_does_not_touch_what_was_renewed_since_it_looked(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    world.clock.wait(31)
    late = sweeper(world)
    settlement = await late._read(world.org, hold.subject.request_id)
    assert settlement is not None
    await world.limiter().renew(hold, NOTHING)
    assert await world.limiter().settle(settlement) == StillAlive()
    assert await world.ledger() == []


async def test_a_reservation_lost_while_it_runs_comes_back_with_its_next_renewal(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs(500, 5000)))
    await world.redis.delete(*[key async for key in world.redis.scan_iter(f"b3os:{{{world.org}}}:*", count=1000)])
    await world.limiter().renew(hold, EVERYTHING)
    world.clock.wait(31)
    await sweep(world)
    assert await world.spent() == (COST, 0)


async def test_an_ended_lease_with_nothing_left_to_bill_is_forgotten(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    await world.redis.delete(names.reservation_key(world.org, hold.subject.request_id))
    await sweep(world)
    assert await world.running() == 1
    world.clock.wait(31)
    await sweep(world)
    assert await world.running() == 0


async def test_sweepers_find_every_organization(world: World) -> None:
    hold_of(await world.limiter().admit(world.subject(), Needs()))
    assert world.org in await world.redis.zrange(names.ORGS, 0, -1)


async def test_an_organization_at_rest_is_forgotten_but_never_one_with_leases(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    await world.redis.zadd(names.ORGS, {world.org: 0})
    await sweep(world)
    assert await world.redis.zscore(names.ORGS, world.org) is not None
    await world.limiter().settle(bill(hold))
    await sweep(world)
    assert await world.redis.zscore(names.ORGS, world.org) is None


async def test_a_thousand_organizations_at_rest_are_forgotten_a_few_at_a_time(world: World) -> None:
    at_rest = {f"{world.org}_{each}": 0.0 for each in range(2 * ORGS_AT_ONCE + 1)}
    await world.redis.zadd(names.ORGS, at_rest)
    left = []
    for _ in range(3):
        await sweep(world)
        left.append(len(at_rest.keys() & set(await world.redis.zrange(names.ORGS, 0, -1))))
    assert left == [ORGS_AT_ONCE + 1, 1, 0]


async def test_who_was_active_when_is_known_by_the_clock_of_redis(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_s, _ = await world.redis.time()
    monkeypatch.setattr("time.time", lambda: 4e9)  # a node's may be days ahead
    await RedisLimiter(world.limiter().store).admit(world.subject(), Needs())
    active_s = await world.redis.zscore(names.ORGS, world.org)
    after_s, _ = await world.redis.time()
    assert active_s is not None
    assert before_s <= active_s <= after_s


async def test_an_organization_that_came_back_since_it_was_looked_at_is_kept(world: World) -> None:
    await world.redis.zadd(names.ORGS, {world.org: 1000, f"{world.org}_2": 999})
    await Store(world.node_redis).run(load_script("rest"), [names.ORGS], [1000, world.org, f"{world.org}_2", "never"])
    assert await world.redis.zmscore(names.ORGS, [world.org, f"{world.org}_2"]) == [1000, None]


async def test_what_expires_and_what_never_does(world: World) -> None:
    held = hold_of(await world.limiter().admit(world.subject(Limits(5, 5000)), Needs(5, 5)))
    request = held.subject.request_id
    assert await world.redis.ttl(names.reservation_key(world.org, request)) == -1
    settled = hold_of(await world.limiter().admit(world.subject(), Needs(5, 5)))
    await world.limiter().settle(bill(settled))
    lives_s = {
        key.split("}:")[1].replace(settled.subject.request_id, "ID"): await world.redis.ttl(key)
        async for key in world.redis.scan_iter(f"b3os:{{{world.org}}}:*", count=1000)
        if request not in key
    }
    day_s = 86_400
    assert {name: round(life_s / day_s) for name, life_s in lives_s.items() if life_s > day_s} == {
        "done:ID": 40,
        "log:record:ID": 30,
        "spend:key_1:2026-11": 400,
        "spend:key_1:2026-11-30": 400,
        "usage:2026-11-30": 400,
    }
    assert {name for name, life_s in lives_s.items() if life_s == -1} == {
        "leases",
        "ledger:2026-11",
        "log:ids",
        "spend:key_1:total",
    }
    meters = {name: life_s for name, life_s in lives_s.items() if name.startswith("meter")}
    assert len(meters) == 2
    assert all(60 < life_s <= 70 for life_s in meters.values())


def test_the_price_of_these_tests_makes_the_cost_that_they_expect() -> None:
    assert PRICE.cost_nano_usd(100, 20) == COST


async def test_a_node_that_was_asked_first_and_froze_takes_nothing_from_the_one_that_answers(world: World) -> None:
    subject = world.subject(Limits(requests_per_minute=5, tokens_per_minute=1000))
    answering = hold_of(await world.limiter().admit(subject, Needs(500, 5000), 2))
    assert await world.limiter().admit(subject, Needs(), 1) == AlreadySettled()
    assert await world.limiter().settle(bill(answering)) == Settled()
    assert [each["outcome"] for each in await world.ledger()] == ["finished"]


async def test_a_node_that_was_asked_later_takes_over(world: World) -> None:
    subject = world.subject(Limits(requests_per_minute=5, tokens_per_minute=1000))
    broken = hold_of(await world.limiter().admit(subject, Needs(500, 5000), 1))
    answering = hold_of(await world.limiter().admit(subject, Needs(), 2))
    assert await world.limiter().settle(bill(broken, NOTHING)) == AlreadySettled()
    assert await world.limiter().settle(bill(answering)) == Settled()
