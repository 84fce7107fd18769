"""The request log on a real Redis: one record, pages, filters, and its bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.limits.bill import Ending, build_refused, build_settlement
from node.limits.facts import running_record
from node.limits.limiter import AlreadySettled, Hold, Needs, Progress, Settled, Subject
from node.limits.redis_limiter import MOST_FREE, system_ms
from shared.org_keys import record_ids_key, refused_ids_key, refused_key
from shared.request_log import MOST_READ, LogFilter, RequestRecord
from tests.integration.limits.parts import MODEL, World, bill, hold_of


def refused(subject: Subject) -> RequestRecord:
    """Of a request that was too much."""
    return replace(running_record(subject), outcome="refused", status=429, error_code="rate_limited")


@pytest.fixture
def today(world: World) -> World:
    """Listings go by the system's clock."""
    world.clock.now_ms = system_ms()
    return world


async def test_a_request_in_flight_shows_running_then_how_it_ended(today: World) -> None:
    hold = hold_of(await today.limiter().admit(today.subject(), Needs()))
    record = await today.log.fetch(today.org, hold.subject.request_id)
    assert record == running_record(hold.subject)
    assert record.created_ms == today.clock.now_ms
    await today.limiter().settle(bill(hold))
    ended = await today.log.fetch(today.org, hold.subject.request_id)
    assert ended is not None
    assert ended.outcome == "finished"


async def test_a_request_that_another_node_took_over_is_shown_at_that_one_while_it_runs(today: World) -> None:
    subject = today.subject()
    hold_of(await today.limiter().admit(subject, Needs()))
    taken = replace(subject, node="n2")
    hold = hold_of(await today.limiter().admit(taken, Needs(), 2))
    assert await today.log.fetch(today.org, subject.request_id) == running_record(taken)
    assert await today.limiter().admit(subject, Needs()) == AlreadySettled()  # the first one, come to itself
    assert await today.log.fetch(today.org, subject.request_id) == running_record(taken)
    assert [record.node for record in (await today.log.fetch_page(today.org)).records] == ["n2"]
    assert await today.limiter().settle(bill(hold)) == Settled()


async def test_another_organization_s_request_is_unknown(today: World) -> None:
    hold = hold_of(await today.limiter().admit(today.subject(), Needs()))
    assert await today.log.fetch("another", hold.subject.request_id) is None
    assert (await today.log.fetch_page("another")).records == []


async def test_pages_go_from_the_newest_to_the_oldest_refusals_among_them(today: World) -> None:
    ids = []
    for number in range(250):
        subject = today.subject()
        ids.append(subject.request_id)
        if number % 3:
            hold_of(await today.limiter().admit(subject, Needs()))
        else:
            await today.limiter().log_refusal(today.org, refused(subject))
        today.clock.wait(-1)
    seen: list[str] = []
    cursor = None
    while True:
        page = await today.log.fetch_page(today.org, cursor=cursor, limit=60)
        assert len(page.records) <= 60
        seen += [record.id for record in page.records]
        if (cursor := page.cursor) is None:
            break
    assert seen == ids


async def test_a_listing_is_narrowed_by_key_model_and_status(today: World) -> None:
    first = hold_of(await today.limiter().admit(today.subject(key="key_a"), Needs()))
    second = hold_of(await today.limiter().admit(today.subject(key="key_b", model="b3os/other"), Needs()))
    await today.limiter().settle(bill(second))
    third = today.subject(key="key_b")
    await today.limiter().log_refusal(today.org, refused(third))

    async def listed(wanted: LogFilter) -> set[str]:
        return {record.id for record in (await today.log.fetch_page(today.org, wanted)).records}

    assert await listed(LogFilter(key_id="key_a")) == {first.subject.request_id}
    assert await listed(LogFilter(model="b3os/other")) == {second.subject.request_id}
    assert await listed(LogFilter(key_id="key_b", model=MODEL)) == {third.request_id}
    assert await listed(LogFilter(status="running")) == {first.subject.request_id}
    assert await listed(LogFilter(status="200")) == {second.subject.request_id}
    assert await listed(LogFilter(status="429")) == {third.request_id}
    assert await listed(LogFilter(status="refused")) == {third.request_id}


async def test_a_filter_that_matches_little_reads_a_bounded_number_and_goes_on(today: World) -> None:
    oldest = today.subject(key="key_rare")
    hold_of(await today.limiter().admit(oldest, Needs()))
    async with today.redis.pipeline(transaction=False) as writes:
        for _ in range(MOST_READ):
            today.clock.wait(0.001)
            writes.zadd(record_ids_key(today.org), {today.subject().request_id: 0})
        await writes.execute()
    wanted = LogFilter(key_id="key_rare")
    page = await today.log.fetch_page(today.org, wanted)
    assert page.records == []
    assert page.cursor is not None
    page = await today.log.fetch_page(today.org, wanted, cursor=page.cursor)
    assert [record.id for record in page.records] == [oldest.request_id]
    assert page.cursor is None


async def test_a_cursor_of_a_stranger_s_making_is_refused(today: World) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await today.log.fetch_page(today.org, cursor="+")


async def test_a_flood_of_refusals_keeps_the_newest_and_no_more(today: World) -> None:
    limiter = today.limiter()
    ids = []
    for _ in range(MOST_FREE + 50):
        subject = today.subject()
        ids.append(subject.request_id)
        await limiter.log_refusal(today.org, refused(subject))
        today.clock.wait(0.001)
    assert await today.redis.zcard(refused_ids_key(today.org)) == MOST_FREE
    assert await today.redis.hlen(refused_key(today.org)) == MOST_FREE
    assert await today.log.fetch(today.org, ids[0]) is None
    assert await today.log.fetch(today.org, ids[-1]) is not None
    assert 0 < await today.redis.ttl(refused_key(today.org)) <= 30 * 86_400
    assert int(await today.redis.memory_usage(refused_key(today.org)) or 0) in range(1, 1_000_000)


async def test_a_refusal_never_hides_an_admitted_request(today: World) -> None:
    hold = hold_of(await today.limiter().admit(today.subject(), Needs()))
    await today.limiter().log_refusal(today.org, refused(hold.subject))
    record = await today.log.fetch(today.org, hold.subject.request_id)
    assert record is not None
    assert record.outcome == "running"


async def test_a_refused_retry_does_not_hide_how_a_free_request_ended(today: World) -> None:
    hold = hold_of(await today.limiter().admit(today.subject(), Needs()))
    await today.limiter().settle(bill(hold, Progress()))
    await today.limiter().log_refusal(today.org, refused(hold.subject))
    record = await today.log.fetch(today.org, hold.subject.request_id)
    assert record is not None
    assert (record.outcome, record.status) == ("finished", 200)


async def test_of_two_refusals_of_one_request_the_last_is_kept(today: World) -> None:
    subject = today.subject()
    for status in (503, 429):
        await today.limiter().log_refusal(today.org, replace(refused(subject), status=status))
    record = await today.log.fetch(today.org, subject.request_id)
    assert record is not None
    assert record.status == 429


async def test_a_refusal_whose_admission_was_never_heard_of_is_logged_once(today: World) -> None:
    """Its own node logs it, and bills nothing for it; whichever comes first."""
    for is_first in (True, False):
        hold = hold_of(await today.limiter().admit(today.subject(), Needs()))
        ending = Ending("refused", 503, "infer_backend_unavailable")
        unheard = build_settlement(hold, Progress(), ending, 0, is_certain=False)
        if is_first:
            await today.limiter().log_refusal(today.org, build_refused(hold.subject, ending))
        await today.limiter().settle(unheard)
        await today.limiter().log_refusal(today.org, build_refused(hold.subject, ending))
        record = await today.log.fetch(today.org, hold.subject.request_id)
        assert record == build_refused(hold.subject, ending)
        never = Hold(today.subject(), today.clock.now_ms, "0f")
        await today.limiter().settle(build_settlement(never, Progress(), ending, 0, is_certain=False))
        await today.limiter().log_refusal(today.org, build_refused(never.subject, ending))
        assert await today.log.fetch(today.org, never.subject.request_id) is not None


async def test_ids_leave_the_index_after_30_days_and_are_not_listed_before_they_do(today: World) -> None:
    hold_of(await today.limiter().admit(today.subject(), Needs()))
    today.clock.wait(-31 * 86_400)
    ancient = [today.subject().request_id for _ in range(40)]
    await today.redis.zadd(record_ids_key(today.org), dict.fromkeys(ancient, 0))
    today.clock.now_ms = system_ms()
    assert len((await today.log.fetch_page(today.org)).records) == 1
    for number, ancient_left in enumerate((24, 8, 0), start=2):
        hold_of(await today.limiter().admit(today.subject(), Needs()))
        assert await today.redis.zcard(record_ids_key(today.org)) == number + ancient_left
