"""Who is let in, on a real Redis, by two nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from redis.crc import key_slot

from node.limits import names
from node.limits.limiter import (
    Adjusted,
    Admitted,
    AlreadySettled,
    CapReached,
    Charged,
    ConcurrencyLimited,
    Limits,
    Lost,
    Needs,
    NeverFits,
    Progress,
    RateLimited,
    Renewed,
    Settled,
    SpendCap,
)
from node.limits.redis_limiter import LEASE_MS, RedisLimiter
from node.limits.store import Store
from node.limits.sweeper import Sweeper
from tests.integration.limits.parts import NOON_MS, World, bill, hold_of

NOTHING = Progress()


async def test_of_200_at_once_at_a_limit_of_50_exactly_50_are_let_in(world: World) -> None:
    limits = Limits(requests_per_minute=50)
    admissions = await asyncio.gather(*(world.limiter().admit(world.subject(limits), Needs()) for _ in range(200)))
    assert Counter(map(type, admissions)) == {Admitted: 50, RateLimited: 150}
    assert await world.meter("requests") == {NOON_MS // 5000: 50}


async def test_40_requests_of_1500_tokens_at_10000_a_minute_are_6(world: World) -> None:
    limits = Limits(tokens_per_minute=10_000)
    asked = (world.limiter().admit(world.subject(limits), Needs(tokens=1500)) for _ in range(40))
    assert Counter(map(type, await asyncio.gather(*asked))) == {Admitted: 6, RateLimited: 34}


async def test_20_requests_of_30_at_a_cap_of_100_are_3(world: World) -> None:
    cap = SpendCap(100, "month")
    asked = (world.limiter().admit(world.subject(cap=cap), Needs(cost_nano_usd=30)) for _ in range(20))
    admissions = await asyncio.gather(*asked)
    assert Counter(map(type, admissions)) == {Admitted: 3, CapReached: 17}
    assert CapReached(cap, 90, 30) in admissions
    assert await world.spent() == (0, 90)


async def test_a_cap_is_met_exactly_and_money_beyond_a_float_s_digits_is_exact(world: World) -> None:
    cap = SpendCap(9_000_000_000_000_001, "total")
    first = await world.limiter().admit(world.subject(cap=cap), Needs(cost_nano_usd=9_000_000_000_000_000))
    hold = hold_of(first)
    assert isinstance(await world.limiter().admit(world.subject(cap=cap), Needs(cost_nano_usd=2)), CapReached)
    assert await world.limiter().adjust(hold, Needs()) == Adjusted()
    assert await world.spent("total") == (0, 0)
    assert await world.limiter().adjust(hold, Needs(cost_nano_usd=9_000_000_000_000_000)) == Adjusted()
    hold_of(await world.limiter().admit(world.subject(cap=cap), Needs(cost_nano_usd=1)))
    assert await world.spent("total") == (0, 9_000_000_000_000_001)


async def test_a_cap_counts_its_own_period_only(world: World) -> None:
    needs = Needs(cost_nano_usd=60)
    hold = hold_of(await world.limiter().admit(world.subject(cap=SpendCap(100, "day")), needs))
    await world.limiter().settle(bill(hold, Progress(True, 20, 0)))  # 60 nano-dollars, on November 30
    world.clock.wait(12 * 3600)
    hold_of(await world.limiter().admit(world.subject(cap=SpendCap(60, "day")), needs))
    hold_of(await world.limiter().admit(world.subject(cap=SpendCap(120, "month")), needs))
    assert isinstance(await world.limiter().admit(world.subject(cap=SpendCap(239, "total")), needs), CapReached)
    assert await world.spent("2026-11-30") == (60, 0)
    assert await world.spent("2026-12-01") == (0, 120)
    assert await world.spent("2026-12") == (0, 120)


async def test_a_cap_set_today_knows_what_was_spent_before(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    await world.limiter().settle(bill(hold, Progress(True, 30, 0)))
    refused = await world.limiter().admit(world.subject(cap=SpendCap(90, "month")), Needs(cost_nano_usd=1))
    assert refused == CapReached(SpendCap(90, "month"), 90, 1)


async def test_waiting_exactly_as_told_is_enough_and_a_second_less_is_not(world: World) -> None:
    limits = Limits(tokens_per_minute=100)
    for tokens in (40, 40, 20):
        hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=tokens)))
        world.clock.wait(7)
    refused = await world.limiter().admit(world.subject(limits), Needs(tokens=70))
    assert isinstance(refused, RateLimited)
    assert (refused.name, refused.limit, refused.remaining) == ("tokens_per_minute", 100, 0)
    assert refused.reset_s == refused.retry_after_s
    world.clock.wait(refused.retry_after_s - 1)
    assert isinstance(await world.limiter().admit(world.subject(limits), Needs(tokens=70)), RateLimited)
    world.clock.wait(1)
    hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=70)))


async def test_no_60_seconds_pass_the_limit_even_from_the_end_of_a_slot(world: World) -> None:
    limits = Limits(requests_per_minute=1)
    world.clock.wait(4.999)
    hold_of(await world.limiter().admit(world.subject(limits), Needs()))
    world.clock.wait(59.999)
    assert isinstance(await world.limiter().admit(world.subject(limits), Needs()), RateLimited)
    world.clock.wait(0.002)
    hold_of(await world.limiter().admit(world.subject(limits), Needs()))


async def test_of_two_full_meters_the_longer_wait_is_told(world: World) -> None:
    limits = Limits(requests_per_minute=2, tokens_per_minute=100)
    hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=1)))
    world.clock.wait(20)
    hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=99)))
    refused = await world.limiter().admit(world.subject(limits), Needs(tokens=99))
    assert isinstance(refused, RateLimited)
    assert (refused.name, refused.retry_after_s) == ("tokens_per_minute", 65)
    world.clock.wait(refused.retry_after_s)
    hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=99)))


async def test_more_than_a_whole_limit_never_fits(world: World) -> None:
    limits = Limits(requests_per_minute=1, tokens_per_minute=100, image_bytes_per_minute=10)
    refused = await world.limiter().admit(world.subject(limits), Needs(tokens=101))
    assert refused == NeverFits("tokens_per_minute", 100, 101)
    refused = await world.limiter().admit(world.subject(limits), Needs(image_bytes=11))
    assert refused == NeverFits("image_bytes_per_minute", 10, 11)
    hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=100, image_bytes=10)))


async def test_a_refused_request_writes_nothing(world: World) -> None:
    limits = Limits(requests_per_minute=10, tokens_per_minute=100, concurrent_requests=1)
    cap = SpendCap(100, "month")
    hold_of(await world.limiter().admit(world.subject(limits, cap), Needs(50, 50)))
    before = await dump(world)
    wider = replace(limits, concurrent_requests=2)
    refused = [
        await world.limiter().admit(world.subject(limits, cap), Needs(50, 50)),
        await world.limiter().admit(world.subject(wider, cap), Needs(50, 51)),
        await world.limiter().admit(world.subject(wider, cap), Needs(51, 50)),
        await world.limiter().admit(world.subject(wider, cap), Needs(101, 50)),
    ]
    assert [type(each) for each in refused] == [ConcurrencyLimited, CapReached, RateLimited, NeverFits]
    assert await dump(world) == before


async def dump(world: World) -> dict[str, object]:
    """Every value of the organization's."""
    values: dict[str, object] = {}
    async for key in world.redis.scan_iter(f"b3os:{{{world.org}}}:*", count=1000):
        match await world.redis.type(key):
            case "hash":
                values[key] = await world.hash(key)
            case "string":
                values[key] = await world.redis.get(key)
            case kind:
                assert kind == "zset"
                values[key] = await world.redis.zrange(key, 0, -1, withscores=True)
    assert values
    return values


async def test_models_have_windows_of_their_own(world: World) -> None:
    limits = Limits(requests_per_minute=1)
    hold_of(await world.limiter().admit(world.subject(limits), Needs()))
    hold_of(await world.limiter().admit(world.subject(limits, model="b3os/other"), Needs()))
    assert isinstance(await world.limiter().admit(world.subject(limits), Needs()), RateLimited)


async def test_the_answer_tells_what_is_left_of_the_requests(world: World) -> None:
    limits = Limits(requests_per_minute=3)
    admitted = await world.limiter().admit(world.subject(limits), Needs())
    assert isinstance(admitted, Admitted)
    assert (admitted.limit, admitted.remaining, admitted.reset_s) == (3, 2, 65)
    world.clock.wait(12)
    admitted = await world.limiter().admit(world.subject(limits), Needs())
    assert isinstance(admitted, Admitted)
    assert (admitted.limit, admitted.remaining, admitted.reset_s) == (3, 1, 53)
    unlimited = await world.limiter().admit(world.subject(), Needs())
    assert isinstance(unlimited, Admitted)
    assert (unlimited.limit, unlimited.remaining, unlimited.reset_s) == (None, None, None)


async def test_a_repeated_admission_is_answered_as_before_and_reserves_once(world: World) -> None:
    subject = world.subject(Limits(requests_per_minute=5, concurrent_requests=1))
    first = await world.limiter().admit(subject, Needs(cost_nano_usd=7))
    again = await world.limiter().admit(subject, Needs(cost_nano_usd=7))
    assert isinstance(first, Admitted)
    assert isinstance(again, Admitted)
    assert (again.remaining, again.reset_s, again.hold.admitted_ms) == (4, 65, first.hold.admitted_ms)
    assert await world.spent() == (0, 7)
    assert await world.meter("requests") == {NOON_MS // 5000: 1}


async def test_a_second_node_that_took_a_request_over_is_the_one_that_bills_it(world: World) -> None:
    subject = world.subject()
    broken = hold_of(await world.limiter().admit(subject, Needs()))
    taken = hold_of(await world.limiter().admit(replace(subject, node="n2"), Needs()))
    assert await world.limiter().renew(broken, Progress(True, 1, 1)) == AlreadySettled()
    assert await world.limiter().settle(bill(broken, NOTHING, status=499)) == AlreadySettled()
    assert await world.limiter().settle(bill(taken)) == Settled()
    assert [(each["node"], each["output_tokens"]) for each in await world.ledger()] == [("n2", "20")]


async def test_what_a_broken_attempt_had_computed_is_not_the_next_one_s(world: World) -> None:
    subject = world.subject()
    broken = hold_of(await world.limiter().admit(subject, Needs()))
    await world.limiter().renew(broken, Progress(True, 100, 20))
    hold_of(await world.limiter().admit(replace(subject, node="n2"), Needs()))
    world.clock.wait(31)
    limiter = world.limiter()
    await Sweeper(limiter.store, limiter, "n9", clock_ms=world.clock)._sweep_some([world.org])
    assert await world.ledger() == []
    record = (await world.log.fetch_page(world.org)).records[0]
    assert (record.node, record.outcome, record.input_tokens) == ("n2", "abandoned", 0)


async def test_who_was_let_in_for_nothing_reserves_later_what_he_needs(world: World) -> None:
    limits, cap = Limits(requests_per_minute=9, tokens_per_minute=700), SpendCap(8000, "day")
    first, second = [hold_of(await world.limiter().admit(world.subject(limits, cap), Needs())) for _ in range(2)]
    assert await world.limiter().adjust(first, Needs(500, 5000)) == Adjusted()
    assert (await world.meter("tokens"), await world.spent()) == ({NOON_MS // 5000: 500}, (0, 5000))
    assert isinstance(await world.limiter().adjust(second, Needs(201, 100)), RateLimited)
    assert isinstance(await world.limiter().adjust(second, Needs(100, 3001)), CapReached)
    assert await world.limiter().adjust(second, Needs(200, 3000)) == Adjusted()
    for hold in (first, second):
        assert await world.limiter().settle(bill(hold, NOTHING)) == Settled()
    assert (await world.meter("tokens"), await world.spent()) == ({}, (0, 0))
    assert await world.meter("requests") == {NOON_MS // 5000: 2}


async def test_what_was_settled_is_not_let_in_again(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    await world.limiter().settle(bill(hold))
    assert await world.limiter().admit(hold.subject, Needs()) == AlreadySettled()
    assert await world.limiter().adjust(hold, Needs()) == AlreadySettled()
    assert await world.limiter().renew(hold, NOTHING) == AlreadySettled()


async def test_a_dead_owner_s_lease_frees_itself(world: World) -> None:
    limits = Limits(concurrent_requests=2)
    for _ in range(2):
        hold_of(await world.limiter().admit(world.subject(limits), Needs()))
    assert await world.limiter().admit(world.subject(limits), Needs()) == ConcurrencyLimited(2, 2)
    world.clock.wait(LEASE_MS / 1000)
    assert await world.limiter().admit(world.subject(limits), Needs()) == ConcurrencyLimited(2, 2)
    world.clock.wait(0.001)
    hold_of(await world.limiter().admit(world.subject(limits), Needs()))


async def test_a_renewed_lease_holds_its_place(world: World) -> None:
    limits = Limits(concurrent_requests=1)
    hold = hold_of(await world.limiter().admit(world.subject(limits), Needs()))
    for _ in range(6):
        world.clock.wait(10)
        assert await world.limiter().renew(hold, NOTHING) == Renewed()
    assert isinstance(await world.limiter().admit(world.subject(limits), Needs()), ConcurrencyLimited)
    await world.limiter().settle(bill(hold))
    hold_of(await world.limiter().admit(world.subject(limits), Needs()))


async def test_a_refund_frees_the_window_at_once(world: World) -> None:
    limits = Limits(tokens_per_minute=1000)
    hold = hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=1000)))
    assert isinstance(await world.limiter().admit(world.subject(limits), Needs(tokens=880)), RateLimited)
    world.clock.wait(64.999)
    await world.limiter().settle(bill(hold))  # 120 tokens
    hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=880)))
    assert isinstance(await world.limiter().admit(world.subject(limits), Needs(tokens=1)), RateLimited)


async def test_a_refund_after_the_window_gives_nothing(world: World) -> None:
    limits = Limits(tokens_per_minute=1000)
    late = hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=1000)))
    world.clock.wait(65)
    hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=1000)))
    await world.limiter().settle(bill(late))
    refused = await world.limiter().admit(world.subject(limits), Needs(tokens=1))
    assert isinstance(refused, RateLimited)
    assert refused.remaining == 0


async def test_more_tokens_than_reserved_count_now(world: World) -> None:
    limits = Limits(tokens_per_minute=1000)
    hold = hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=50)))
    world.clock.wait(10)
    await world.limiter().settle(bill(hold))  # 120 tokens
    assert await world.meter("tokens") == {NOON_MS // 5000: 50, NOON_MS // 5000 + 2: 70}


async def test_a_reservation_shrinks_and_frees_what_it_gave_back(world: World) -> None:
    limits, cap = Limits(tokens_per_minute=1000), SpendCap(1000, "month")
    hold = hold_of(await world.limiter().admit(world.subject(limits, cap), Needs(1000, 1000)))
    world.clock.wait(5)
    assert await world.limiter().adjust(hold, Needs(300, 400)) == Adjusted()
    assert await world.spent() == (0, 400)
    assert await world.meter("tokens") == {NOON_MS // 5000: 300}
    hold_of(await world.limiter().admit(world.subject(limits, cap), Needs(700, 600)))
    await world.limiter().settle(bill(hold))
    assert await world.spent() == (600, 600)  # 100 * 3 + 20 * 15
    assert await world.meter("tokens") == {NOON_MS // 5000: 120, NOON_MS // 5000 + 1: 700}


async def test_a_reservation_grows_only_under_the_rules_of_admission(world: World) -> None:
    limits, cap = Limits(tokens_per_minute=1000), SpendCap(1000, "month")
    hold = hold_of(await world.limiter().admit(world.subject(limits, cap), Needs(300, 300)))
    hold_of(await world.limiter().admit(world.subject(limits, cap), Needs(400, 400)))
    world.clock.wait(5)
    before = await dump(world)
    assert await world.limiter().adjust(hold, Needs(300, 601)) == CapReached(cap, 400, 601)
    assert await world.limiter().adjust(hold, Needs(1001, 300)) == NeverFits("tokens_per_minute", 1000, 1001)
    refused = await world.limiter().adjust(hold, Needs(601, 300))
    assert isinstance(refused, RateLimited)
    assert (refused.remaining, refused.retry_after_s) == (300, 60)
    assert await dump(world) == before
    assert await world.limiter().adjust(hold, Needs(600, 600)) == Adjusted()
    assert await world.meter("tokens") == {NOON_MS // 5000: 400, NOON_MS // 5000 + 1: 600}
    await world.limiter().settle(bill(hold))
    assert await world.meter("tokens") == {NOON_MS // 5000: 400, NOON_MS // 5000 + 1: 120}


async def test_growing_after_the_window_charges_only_what_is_new(world: World) -> None:
    limits = Limits(tokens_per_minute=1000)
    hold = hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=900)))
    world.clock.wait(70)
    await world.limiter().renew(hold, NOTHING)
    assert await world.limiter().adjust(hold, Needs(tokens=1000)) == Adjusted()
    assert await world.meter("tokens") == {NOON_MS // 5000 + 14: 100}
    await world.limiter().settle(bill(hold, NOTHING))
    assert await world.meter("tokens") == {}


async def test_what_left_the_window_is_given_back_to_nobody_s_slot(world: World) -> None:
    limits = Limits(tokens_per_minute=1000)
    holds = [hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=300))) for _ in range(2)]
    world.clock.wait(70)
    for hold in holds:
        assert await world.limiter().adjust(hold, Needs(tokens=400)) == Adjusted()
    hold_of(await world.limiter().admit(world.subject(limits), Needs(tokens=500)))
    slot = NOON_MS // 5000 + 14  # has 100 of each, and 500 of a stranger's
    assert await world.limiter().adjust(holds[0], Needs(tokens=150)) == Adjusted()
    assert await world.meter("tokens") == {slot: 600}
    await world.limiter().settle(bill(holds[1], NOTHING))
    assert await world.meter("tokens") == {slot: 500}


async def test_a_lost_reservation_can_not_be_adjusted(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    await world.redis.delete(names.reservation_key(world.org, hold.subject.request_id))
    assert await world.limiter().adjust(hold, Needs(tokens=5)) == Lost()


async def test_image_bytes_are_booked_as_they_arrive_and_once(world: World) -> None:
    limits = Limits(image_bytes_per_minute=100)
    hold = hold_of(await world.limiter().admit(world.subject(limits), Needs()))
    for total in (30, 30, 60, 60, 90):
        assert await world.limiter().charge_images(hold, total) == Charged()
    assert sum((await world.meter("images")).values()) == 90
    world.clock.wait(10)
    other = hold_of(await world.limiter().admit(world.subject(limits), Needs()))
    refused = await world.limiter().charge_images(other, 40)
    assert refused == RateLimited("image_bytes_per_minute", 100, 0, 55, 55)
    assert sum((await world.meter("images")).values()) == 100  # they did arrive
    assert await world.limiter().charge_images(other, 101) == NeverFits("image_bytes_per_minute", 100, 101)
    await world.limiter().settle(bill(hold, image_bytes=90))
    assert sum((await world.meter("images")).values()) == 100  # no refunds
    assert (await world.ledger())[0]["image_bytes"] == "90"


async def test_bytes_announced_at_admission_are_charged_once(world: World) -> None:
    limits = Limits(image_bytes_per_minute=100)
    hold = hold_of(await world.limiter().admit(world.subject(limits), Needs(image_bytes=50)))
    assert await world.limiter().charge_images(hold, 50) == Charged()
    assert await world.limiter().charge_images(hold, 60) == Charged()
    assert sum((await world.meter("images")).values()) == 60


async def test_a_node_whose_clock_is_a_day_ahead_asks_again_for_the_right_day(world: World) -> None:
    limiter = RedisLimiter(Store(world.redis))
    limiter._ahead_ms = names.DAY_MS
    hold = hold_of(await limiter.admit(world.subject(), Needs(cost_nano_usd=5)))
    seconds, _ = await world.redis.time()
    assert abs(hold.admitted_ms // 1000 - int(seconds)) < 3600
    assert await world.spent(names.period_name("day", hold.admitted_ms)) == (0, 5)
    assert abs(limiter._ahead_ms) < 3_600_000


async def test_a_request_s_keys_are_in_one_hash_slot(world: World) -> None:
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    keys = {
        *names.admit_keys(hold.subject, hold.admitted_ms),
        *names.adjust_keys(hold),
        *names.charge_keys(hold),
        *names.renew_keys(hold),
        *names.settle_keys(hold),
        *names.refuse_keys(world.org, hold.subject.request_id),
    }
    assert len(keys) == 15
    assert len({key_slot(key.encode()) for key in keys}) == 1
    assert key_slot(b"123456789") == 12739  # CRC16 as the specification's own example has it


async def test_scripts_are_sent_again_to_a_redis_that_forgot_them(world: World) -> None:
    await world.redis.script_flush()
    hold = hold_of(await world.limiter().admit(world.subject(), Needs()))
    await world.redis.script_flush()
    assert await world.limiter().settle(bill(hold)) == Settled()
