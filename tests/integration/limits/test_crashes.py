"""Redis and nodes that die or freeze at the worst moment: no token is lost, and none is billed twice."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from node.limits import names
from node.limits.books import Books
from node.limits.limiter import (
    Admitted,
    AlreadySettled,
    Limits,
    Needs,
    Settled,
    SpendCap,
    Subject,
    Unanswered,
    Unavailable,
)
from node.limits.redis_limiter import RedisLimiter, system_ms
from node.limits.settlement import Desk, Reservation
from node.limits.spool import Spool
from node.limits.sweeper import Sweeper
from tests.integration.limits.parts import EVERYTHING, MortalRedis, World, bill, hold_of, world_on
from tests.patience import own_connections

COST = 100 * 3 + 20 * 15
ABOUT_A_SECOND = 15.0
"""Plus what a loaded machine needs. Untuned, redis-py waits 25 s."""
WELL_WITHIN_S = 60.0


@pytest.fixture
async def doomed(mortal_redis: MortalRedis, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """On the Redis that the test may kill, with connections that give it up; however late this loop is, that is none
    of an excuse for a Redis that does not answer."""
    monkeypatch.setattr("node.limits.heartbeat.LATE_S", 3600)
    with own_connections():
        async with world_on(mortal_redis.url) as each:
            yield each


@dataclass(slots=True)
class Node:
    """What a node has: one limiter, its spool, and its books."""

    world: World
    folder: Path
    limiter: RedisLimiter = field(init=False)
    spool: Spool = field(init=False)
    books: Books = field(init=False)

    def __post_init__(self) -> None:
        self.limiter = self.world.limiter()
        self.spool = Spool(self.folder)
        self.books = Books(self.limiter, self.spool, until_back=self.limiter.store.breaker.wait_until_closed)

    async def empty_spool(self) -> None:
        """Wait until everything was replayed."""
        async with asyncio.timeout(WELL_WITHIN_S):
            while self.spool.names():
                await asyncio.sleep(0.02)

    async def back(self) -> None:
        """Wait until Redis is believed to answer."""
        async with asyncio.timeout(WELL_WITHIN_S):
            await self.limiter.store.breaker.wait_until_closed()


async def booked(world: World) -> Counter[str]:
    """How often each request is in the ledger; all of it adds up."""
    entries = await world.ledger()
    settled, held = await world.spent()
    assert settled == sum(int(each["cost_nano_usd"]) for each in entries)
    assert held == 0
    assert await world.running() == 0
    return Counter(each["request"] for each in entries)


async def test_redis_is_killed_between_admission_and_bill(
    doomed: World, mortal_redis: MortalRedis, tmp_path: Path
) -> None:
    node = Node(doomed, tmp_path / "spool")
    limits = Limits(requests_per_minute=10, tokens_per_minute=1000, concurrent_requests=1)
    hold = hold_of(await node.limiter.admit(doomed.subject(limits, SpendCap(9999, "month")), Needs(500, 5000)))
    mortal_redis.kill()
    mortal_redis.start()
    assert await doomed.spent() == (0, 5000)  # all that was acknowledged is there
    assert await doomed.running() == 1
    assert await node.books.book(bill(hold)) in (Settled(), Unavailable())
    await node.back()
    await node.books.replay()
    mortal_redis.kill()
    mortal_redis.start()
    await node.back()
    assert await booked(doomed) == {hold.subject.request_id: 1}
    assert sum((await doomed.meter("tokens")).values()) == 120


async def test_redis_is_killed_while_a_hundred_bills_come_in(
    doomed: World, mortal_redis: MortalRedis, tmp_path: Path
) -> None:
    node = Node(doomed, tmp_path / "spool")
    holds = [hold_of(await node.limiter.admit(doomed.subject(), Needs(500, 5000))) for _ in range(100)]
    bookings = [asyncio.create_task(node.books.book(bill(hold))) for hold in holds]
    await bookings[10]
    mortal_redis.kill()
    outcomes = Counter(type(each) for each in await asyncio.gather(*bookings))
    assert outcomes[Settled] + outcomes[Unavailable] == 100
    assert len(node.spool.names()) == outcomes[Unavailable] > 0
    mortal_redis.start()
    later = Node(doomed, tmp_path / "spool")  # the node was started again, too
    await later.back()
    async with later.books.replaying():
        await later.empty_spool()
    assert await booked(doomed) == dict.fromkeys((hold.subject.request_id for hold in holds), 1)


@pytest.mark.usefixtures("redis_is_given_up")
async def test_a_frozen_redis_is_noticed_in_a_second_and_asked_no_more(
    doomed: World, mortal_redis: MortalRedis
) -> None:
    limiter = doomed.limiter()
    hold_of(await limiter.admit(doomed.subject(), Needs()))
    mortal_redis.freeze()
    began = time.monotonic()
    assert isinstance(await limiter.admit(doomed.subject(), Needs()), Unanswered)
    assert time.monotonic() - began < ABOUT_A_SECOND
    began = time.monotonic()
    for _ in range(1000):
        assert await limiter.admit(doomed.subject(), Needs()) == Unavailable()
    assert time.monotonic() - began < ABOUT_A_SECOND  # 1000 of them, each would wait a second
    mortal_redis.thaw()
    async with asyncio.timeout(WELL_WITHIN_S):
        await limiter.store.breaker.wait_until_closed()
        hold_of(await limiter.admit(doomed.subject(), Needs()))


async def test_bills_of_a_frozen_time_wait_in_the_spool_and_are_booked_once(
    doomed: World, mortal_redis: MortalRedis, tmp_path: Path
) -> None:
    node = Node(doomed, tmp_path / "spool")
    holds = [hold_of(await node.limiter.admit(doomed.subject(), Needs(500, 5000))) for _ in range(20)]
    async with node.books.replaying():
        mortal_redis.freeze()
        bookings = await asyncio.gather(*(node.books.book(bill(hold)) for hold in holds))
        assert set(bookings) == {Unavailable()}
        assert len(node.spool.names()) == 20
        mortal_redis.thaw()  # what lies in its sockets is carried out now, and the spool comes on top
        await node.empty_spool()
    assert await booked(doomed) == dict.fromkeys((hold.subject.request_id for hold in holds), 1)
    assert await doomed.spent() == (20 * COST, 0)


NARROW = Limits(tokens_per_minute=500, concurrent_requests=1)
CAP = SpendCap(5000, "month")
WHOLE = Needs(500, 5000)
"""As much as may be, so that a second such request finds out whether anything of the first is still held."""


async def warmed_up(node: Node) -> None:
    """Connections are open, and Redis knows the scripts: what is sent then lies in a frozen Redis's sockets whole."""
    hold = hold_of(await node.limiter.admit(node.world.subject(key="key_2"), Needs()))
    await node.limiter.settle(bill(hold))


async def test_an_admission_whose_answer_was_lost_is_ended_by_its_own_node(
    doomed: World, mortal_redis: MortalRedis, tmp_path: Path
) -> None:
    """No clock moves here, and no sweeper runs."""
    node = Node(doomed, tmp_path / "spool")
    await warmed_up(node)
    desk = Desk(node.limiter, node.books)
    subject = doomed.subject(NARROW, CAP)
    async with node.books.replaying():
        mortal_redis.freeze()
        assert await desk.open(subject, WHOLE) == Unavailable()
        await desk.aclose()
        assert node.spool.names() == [f"{subject.request_id}.bill"]
        mortal_redis.thaw()
        await node.empty_spool()
    assert await doomed.spent() == (0, 0)
    assert await doomed.running() == 0
    done = str(await doomed.redis.get(names.done_key(doomed.org, subject.request_id)))
    assert done.partition(":")[0] == "final"
    assert await node.limiter.admit(subject, WHOLE) == AlreadySettled()  # should it still lie in a socket
    async with await opened(desk, doomed.subject(NARROW, CAP)):
        pass


async def opened(desk: Desk, subject: Subject) -> Reservation:
    """What must have been admitted."""
    reservation = await desk.open(subject, WHOLE)
    assert isinstance(reservation, Reservation), reservation
    return reservation


async def test_whoever_leaves_while_a_frozen_redis_is_asked_leaves_nothing_behind_either(
    doomed: World, mortal_redis: MortalRedis, tmp_path: Path
) -> None:
    node = Node(doomed, tmp_path / "spool")
    await warmed_up(node)
    desk = Desk(node.limiter, node.books)
    subject = doomed.subject(NARROW, CAP)
    async with node.books.replaying():
        mortal_redis.freeze()
        opening = asyncio.create_task(desk.open(subject, WHOLE))
        while not desk._tasks:
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await desk.aclose()
        mortal_redis.thaw()
        await node.empty_spool()
    assert await doomed.spent() == (0, 0)
    assert await doomed.running() == 0
    hold_of(await node.limiter.admit(doomed.subject(NARROW, CAP), WHOLE))


async def test_where_nothing_was_sent_nothing_is_owed(
    doomed: World, mortal_redis: MortalRedis, tmp_path: Path
) -> None:
    """Neither behind an open breaker, nor where no connection could be made."""
    node = Node(doomed, tmp_path / "spool")
    await warmed_up(node)
    desk = Desk(node.limiter, node.books)
    mortal_redis.kill()
    while isinstance(await node.limiter.admit(doomed.subject(), WHOLE), Unanswered):
        pass  # the connection was open when Redis died
    assert node.limiter.store.breaker.is_open
    assert await desk.open(doomed.subject(), WHOLE) == Unavailable()
    fresh = World.at(mortal_redis.url, org=doomed.org)
    limiter = fresh.limiter()
    limiter._announced_s[doomed.org] = time.monotonic()  # else an earlier question fails
    assert await limiter.admit(doomed.subject(), WHOLE) == Unavailable()
    await fresh.aclose()
    await desk.aclose()
    assert node.spool.names() == []


async def test_a_refusal_by_redis_itself_owes_nothing(world: World, tmp_path: Path) -> None:
    await world.redis.set(names.leases_key(world.org), "of another type")
    node = Node(world, tmp_path / "spool")
    desk = Desk(node.limiter, node.books)
    assert await desk.open(world.subject(NARROW), WHOLE) == Unavailable()
    await desk.aclose()
    assert node.spool.names() == []
    await world.redis.delete(names.leases_key(world.org))


async def test_a_redis_that_is_gone_is_noticed_as_fast(doomed: World, mortal_redis: MortalRedis) -> None:
    limiter = doomed.limiter()
    hold_of(await limiter.admit(doomed.subject(), Needs()))
    mortal_redis.kill()
    began = time.monotonic()
    assert isinstance(await limiter.admit(doomed.subject(), Needs()), Unanswered | Unavailable)
    assert time.monotonic() - began < ABOUT_A_SECOND
    assert limiter.store.breaker.is_open


async def test_a_refusal_of_redis_itself_is_unavailable_but_no_outage(world: World) -> None:
    key = names.leases_key(world.org)
    await world.redis.set(key, "of another type")
    limiter = world.limiter()
    assert await limiter.admit(world.subject(Limits(concurrent_requests=1)), Needs()) == Unavailable()
    assert not limiter.store.breaker.is_open
    await world.redis.delete(key)
    assert isinstance(await limiter.admit(world.subject(), Needs()), Admitted)


async def test_a_node_killed_in_the_middle_is_billed_to_what_it_told(
    world: World, redis_url: str, tmp_path: Path
) -> None:
    began_ms = system_ms()
    node = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.limits.dying_node", redis_url, world.org, str(tmp_path / "spool")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert node.stdout is not None
    request_id = (await asyncio.wait_for(node.stdout.readline(), WELL_WITHIN_S)).decode().strip()
    node.kill()
    await node.wait()
    world.clock.now_ms = system_ms() + 120_000
    limiter = world.limiter()
    sweeper = Sweeper(limiter.store, limiter, "n9", clock_ms=world.clock)
    assert await sweeper._sweep_some([world.org]) == 1
    assert await sweeper._sweep_some([world.org]) == 0
    months = {names.period_name("month", at_ms) for at_ms in (began_ms, system_ms())}
    entries = [each for month in sorted(months) for each in await world.ledger(month)]
    assert [(each["request"], each["outcome"], each["cost_nano_usd"]) for each in entries] == [
        (request_id, "abandoned", str(COST))
    ]
    assert await world.spent("total") == (COST, 0)


async def test_a_bill_that_came_through_though_its_answer_did_not_is_dropped_from_the_spool(
    world: World, tmp_path: Path
) -> None:
    node = Node(world, tmp_path / "spool")
    hold = hold_of(await node.limiter.admit(world.subject(), Needs()))
    node.spool.put(bill(hold))
    assert await node.limiter.settle(bill(hold)) == Settled()
    assert await node.books.replay() == 0
    assert node.spool.names() == []
    assert await node.limiter.settle(bill(hold)) == AlreadySettled()
    assert len(await world.ledger()) == 1


async def test_the_sweeper_waits_after_an_outage_until_owners_could_renew(world: World) -> None:
    limiter = world.limiter()
    hold = hold_of(await limiter.admit(world.subject(), Needs()))
    await limiter.renew(hold, EVERYTHING)
    world.clock.wait(31)
    hasty = Sweeper(limiter.store, limiter, "n9", quiet_s=0, sweep_every_s=0.01, clock_ms=world.clock)
    patient = Sweeper(limiter.store, limiter, "n8", quiet_s=3600, sweep_every_s=0.01, clock_ms=world.clock)
    async with patient.sweeping():
        await asyncio.sleep(0.3)
        assert await world.ledger() == []
    async with hasty.sweeping(), asyncio.timeout(WELL_WITHIN_S):
        while not await world.ledger():
            await asyncio.sleep(0.01)
    assert [each["outcome"] for each in await world.ledger()] == ["abandoned"]
