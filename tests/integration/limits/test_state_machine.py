"""Any sequence of admissions, adjustments, renewals, bills, sweeps, losses and waits: Redis does what the model does.

200 sequences of 50 steps. After every step all state is compared, so a failure names the step that broke it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from node.limits import names
from node.limits.limiter import (
    Admitted,
    AlreadySettled,
    Amended,
    Hold,
    Limits,
    Needs,
    Progress,
    Renewed,
    Settled,
    SpendCap,
)
from node.limits.sweeper import Sweeper
from shared.org_keys import spend_key
from tests.integration.limits.model import LEASE_MS, Model, periods
from tests.integration.limits.parts import NOON_MS, PRICE, World, bill

T = TypeVar("T")
LIMITS = Limits(6, 1000, 500, 4)
CAP = SpendCap(200_000, "month")
waits = st.sampled_from([0.001, 1, 4.999, 5, 9, 20, 30.001, 61, 65, 6 * 3600])
token_counts = st.sampled_from([0, 1, 100, 100, 300, 399, 500, 1000, 1001])
costs = st.sampled_from([0, 1, 700, 700, 90_000, 200_001])
picks = st.integers(0, 100)
byte_counts = st.sampled_from([0, 0, 0, 1, 120, 499, 501])
progresses = st.builds(Progress, st.just(True), st.sampled_from([0, 1, 80, 300]), st.sampled_from([0, 1, 50, 900]))


class Machine(RuleBasedStateMachine):
    """Redis beside the model."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.world = World.at(self.url)
        self.model = Model(self.world.clock, LIMITS, CAP, PRICE.cost_nano_usd)
        self.holds: dict[str, Hold] = {}
        self.admitted_at_ms: list[int] = []
        self.has_lost = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the machine's own loop."""
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.world.aclose())
        self.runner.close()

    @initialize(seconds=st.sampled_from([0, 3.2, 12 * 3600 - 40]))
    def begin(self, seconds: float) -> None:
        self.world.clock.now_ms = NOON_MS
        self.world.clock.wait(seconds)

    @rule(seconds=waits)
    def wait(self, seconds: float) -> None:
        self.world.clock.wait(seconds)

    @rule(tokens=token_counts, cost=costs, images=byte_counts)
    def admit(self, tokens: int, cost: int, images: int) -> None:
        needs = Needs(tokens, cost, images)
        subject = self.world.subject(LIMITS, CAP)
        expected = self.model.admit(subject.request_id, needs)
        admission = self.run(self.world.limiter().admit(subject, needs))
        if not isinstance(admission, Admitted):
            assert admission == expected
            return
        assert expected is None
        assert admission.hold.admitted_ms == self.world.clock.now_ms
        assert admission.remaining == 6 - self.model.requests.total()
        self.admitted_at_ms.append(self.world.clock.now_ms)
        self.holds[subject.request_id] = admission.hold

    @rule(tokens=token_counts, cost=costs, is_late=st.booleans())
    def admit_unheard(self, tokens: int, cost: int, is_late: bool) -> None:
        """Nobody hears the answer. The bill that ends it comes behind the admission, or before it."""
        world, needs, subject = self.world, Needs(tokens, cost), self.world.subject(LIMITS, CAP)
        hold = Hold(subject, world.clock.now_ms, "1f")
        if not is_late:
            expected = self.model.admit(subject.request_id, needs)
            admission = self.run(world.limiter().admit(subject, needs))
            if isinstance(admission, Admitted):
                hold = admission.hold
                self.admitted_at_ms.append(hold.admitted_ms)
            else:
                assert admission == expected
        self.holds[subject.request_id] = hold
        bill_of_nothing = replace(bill(hold, Progress()), is_certain=False)
        booked = self.model.settle_unheard(subject.request_id, hold.admitted_ms)
        assert self.run(world.limiter().settle(bill_of_nothing)) == booked
        assert self.run(world.limiter().admit(subject, needs)) == AlreadySettled()

    def pick(self, number: int) -> str:
        """One of those that are not settled for good, or of the last three that are."""
        final = [request for request, swept in self.model.done.items() if swept is None and request in self.holds]
        open_ones = [request for request in self.holds if request not in final]
        choice = open_ones * 3 + final[-3:]
        return choice[number % len(choice)]

    def known(self) -> list[str]:
        """Those that run or were billed, in an order that is the same each time."""
        return [request for request in self.holds if request in self.model.kept or request in self.model.billed]

    def attempt(self, request: str) -> int:
        """Of the owner who was let in last."""
        return int(self.holds[request].owner[0])

    @precondition(lambda self: self.holds)
    @rule(pick=picks, more=st.sampled_from([0, 1, 1]))
    def admit_again(self, pick: int, more: int) -> None:
        """By a second node, which is the owner from then on."""
        request = self.pick(pick)
        attempt = min(9, self.attempt(request) + more)
        if request not in self.model.kept and request not in self.model.done:
            return  # lost: nobody could tell it from a new one
        admission = self.run(self.world.limiter().admit(self.holds[request].subject, Needs(1, 1), attempt))
        expected = self.model.admit(request, Needs(1, 1), attempt)
        if not isinstance(admission, Admitted):
            assert admission == expected
            return
        assert expected is None
        assert admission.hold.admitted_ms == self.holds[request].admitted_ms
        self.holds[request] = admission.hold
        self.model.kept[request].progress, self.model.kept[request].attempt = Progress(), attempt
        self.model.leases[request] = self.world.clock.now_ms + LEASE_MS

    @precondition(lambda self: self.known())
    @rule(pick=picks, more=st.sampled_from([0, 1, 1]))
    def admit_again_unheard(self, pick: int, more: int) -> None:
        """A second node hears no answer: its bill of nothing comes before its admission, and bars it."""
        request = self.known()[pick % len(self.known())]
        attempt = min(9, self.attempt(request) + more)
        subject = self.holds[request].subject
        unheard = Hold(subject, self.world.clock.now_ms, f"{attempt}e")
        void = replace(bill(unheard, Progress()), is_certain=False)
        assert self.run(self.world.limiter().settle(void)) == AlreadySettled()
        self.model.bar(request, attempt)
        assert self.run(self.world.limiter().admit(subject, Needs(1, 1), attempt)) == AlreadySettled()

    @precondition(lambda self: self.holds)
    @rule(pick=picks, tokens=token_counts, cost=costs)
    def adjust(self, pick: int, tokens: int, cost: int) -> None:
        request = self.pick(pick)
        hold, needs = self.holds[request], Needs(tokens, cost)
        expected = self.model.adjust(request, hold.admitted_ms, needs)
        assert self.run(self.world.limiter().adjust(hold, needs)) == expected

    @precondition(lambda self: self.holds)
    @rule(pick=picks, total=byte_counts)
    def charge(self, pick: int, total: int) -> None:
        request = self.pick(pick)
        expected = self.model.charge(request, total)
        assert self.run(self.world.limiter().charge_images(self.holds[request], total)) == expected

    @precondition(lambda self: self.holds)
    @rule(pick=picks, progress=progresses)
    def renew(self, pick: int, progress: Progress) -> None:
        request = self.pick(pick)
        expected = self.model.renew(request, progress, self.attempt(request))
        assert self.run(self.world.limiter().renew(self.holds[request], progress)) == expected

    @precondition(lambda self: self.holds)
    @rule(pick=picks, progress=progresses)
    def settle(self, pick: int, progress: Progress) -> None:
        request = self.pick(pick)
        hold = self.holds[request]
        expected = self.model.settle(request, hold.admitted_ms, progress, self.attempt(request))
        assert self.run(self.world.limiter().settle(bill(hold, progress))) == expected

    @rule(seconds=st.sampled_from([35, 65, 70]))
    def work(self, seconds: float) -> None:
        """Everything that runs is renewed while time passes."""
        self.world.clock.wait(seconds)
        for request, kept in list(self.model.kept.items()):
            assert self.model.renew(request, kept.progress) == Renewed()
            assert self.run(self.world.limiter().renew(self.holds[request], kept.progress)) == Renewed()

    @rule(seconds=st.sampled_from([0, 30.001]))
    def sweep(self, seconds: float) -> None:
        self.world.clock.wait(seconds)
        limiter = self.world.limiter()
        sweeper = Sweeper(limiter.store, limiter, "n9", clock_ms=self.world.clock)
        swept = [self.model.sweep(request, self.holds[request].admitted_ms) for request in list(self.model.leases)]
        booked = [booking for booking in swept if isinstance(booking, Settled | Amended)]
        assert self.run(sweeper._sweep_some([self.world.org])) == len(booked)

    @precondition(lambda self: self.model.kept)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        """It goes back, and is never heard of again."""
        request = list(self.model.kept)[pick % len(self.model.kept)]
        hold = self.holds.pop(request)
        was_counted = self.model.kept[request].is_counted
        self.model.release(request, hold.admitted_ms)
        if was_counted and hold.admitted_ms in self.admitted_at_ms:
            self.admitted_at_ms.remove(hold.admitted_ms)
        self.run(self.world.limiter().release(hold))

    @precondition(lambda self: self.holds)
    @rule(pick=picks)
    def lose(self, pick: int) -> None:
        request = self.pick(pick)
        self.model.lose(request)
        self.has_lost = True
        key = names.reservation_key(self.world.org, request)
        self.run(self.delete(key))

    async def delete(self, key: str) -> None:
        await self.world.redis.delete(key)

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        self.run(self.compare())

    async def compare(self) -> None:
        """All of it in one round trip."""
        world, model, subject = self.world, self.model, self.world.subject()
        periods_known = sorted(model.held.keys() | model.settled.keys())
        async with world.redis.pipeline(transaction=False) as reads:
            for name in ("requests", "tokens", "images"):
                reads.hgetall(names.meter_key(subject, name))
            reads.zrange(names.leases_key(world.org), 0, -1, withscores=True)
            for period in periods_known:
                reads.hgetall(spend_key(world.org, "key_1", period))
            for month in ("2026-11", "2026-12", "2027-01"):
                reads.xrange(names.ledger_key(world.org, month))
            answers: list[Any] = await reads.execute()
        for meter, stored in zip((model.requests, model.tokens, model.images), answers[:3], strict=True):
            sums = {int(slot): int(total) for slot, total in stored.items()}
            assert {slot: total for slot, total in sums.items() if meter.slot() - slot < 13 and total} == meter.live()
        assert {request: int(end) for request, end in answers[3]} == model.leases
        for period, spend in zip(periods_known, answers[4:-3], strict=True):
            booked = {"held": model.held[period], "settled": model.settled[period]}
            assert {name: int(spend.get(name, 0)) for name in booked} == booked, period
            if not model.kept and not self.has_lost:
                assert set(spend.values()) != {"0"}, "a sum of nothing stays"
        for month, entries in zip(("2026-11", "2026-12", "2027-01"), answers[-3:], strict=True):
            assert Counter(int(fields["cost_nano_usd"]) for _, fields in entries) == Counter(model.ledger[month])
            assert sum(model.ledger[month]) == model.settled[month]

    @invariant()
    def no_60_seconds_let_more_in_than_the_limit(self) -> None:
        """Said without slots."""
        times = self.admitted_at_ms
        for first, seventh in zip(times, times[6:], strict=False):
            assert seventh - first >= 60_000

    @invariant()
    def what_is_held_is_what_runs(self) -> None:
        """Unless the store lost it: that stays held, since nobody knows it any more."""
        assert self.model.held["total"] >= sum(kept.held for kept in self.model.kept.values())


def test_any_sequence_of_calls_is_booked_as_the_model_books_it(redis_url: str) -> None:
    Machine.url = redis_url
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=200,
            stateful_step_count=50,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )


def test_days_and_months_are_named_alike_here_and_there() -> None:
    assert periods(NOON_MS) == tuple(names.period_name(period, NOON_MS) for period in ("day", "month", "total"))
