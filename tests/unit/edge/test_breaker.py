"""When a node that failed is left alone, and when it is tried."""

from __future__ import annotations

from edge.breaker import FAILURES, FIRST_OPEN_S, LONGEST_OPEN_S, PROBE_S, Breaker


def failed(times: int, now_s: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(times):
        breaker.fail(now_s)
    return breaker


def test_it_opens_after_failures_in_a_row_only() -> None:
    breaker = failed(FAILURES - 1)
    assert breaker.lets_through(0)
    breaker.succeed()
    for _ in range(FAILURES - 1):
        breaker.fail(0)
    assert breaker.lets_through(0)
    breaker.fail(0)
    assert not breaker.lets_through(0)
    assert breaker.opened == 1


def test_one_request_tries_while_the_others_wait() -> None:
    breaker = failed(FAILURES)
    assert breaker.lets_through(FIRST_OPEN_S)
    breaker.begin(FIRST_OPEN_S)
    assert not breaker.lets_through(FIRST_OPEN_S)
    assert breaker.lets_through(FIRST_OPEN_S + PROBE_S)  # the one that tries may take long
    breaker.succeed()
    assert breaker.lets_through(FIRST_OPEN_S)


def test_whoever_leaves_while_trying_makes_room_for_the_next_at_once() -> None:
    breaker = failed(FAILURES)
    first = breaker.begin(FIRST_OPEN_S)
    assert breaker.begin(FIRST_OPEN_S) is None  # asked for want of any other: it has no say
    breaker.abandon(None)
    assert not breaker.lets_through(FIRST_OPEN_S)
    breaker.abandon(first)
    assert breaker.lets_through(FIRST_OPEN_S)
    assert breaker.is_open
    breaker.begin(FIRST_OPEN_S)
    breaker.fail(FIRST_OPEN_S)
    assert not breaker.lets_through(FIRST_OPEN_S + FIRST_OPEN_S)  # it counts as the second try that it is


def test_who_leaves_late_opens_nothing_that_another_has_shut() -> None:
    breaker = failed(FAILURES)
    first = breaker.begin(FIRST_OPEN_S)
    later_s = FIRST_OPEN_S + PROBE_S
    breaker.begin(later_s)
    breaker.abandon(first)
    assert not breaker.lets_through(later_s)
    breaker.fail(later_s)
    breaker.abandon(first)
    assert not breaker.lets_through(later_s)


def tried_in_vain(breaker: Breaker) -> float:
    """How long it is left alone after that."""
    now_s = breaker.shut_until_s
    breaker.begin(now_s)
    breaker.fail(now_s)
    return breaker.shut_until_s - now_s


def test_it_waits_longer_from_try_to_try_up_to_a_bound() -> None:
    breaker = failed(FAILURES)
    assert breaker.shut_until_s == FIRST_OPEN_S
    waits = [tried_in_vain(breaker) for _ in range(12)]
    assert waits[:2] == [2 * FIRST_OPEN_S, 4 * FIRST_OPEN_S]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_OPEN_S
    for _ in range(10_000):
        tried_in_vain(breaker)
    assert tried_in_vain(breaker) == LONGEST_OPEN_S


def test_one_death_that_fails_many_requests_counts_as_one() -> None:
    breaker = failed(1000)
    assert (breaker.failures, breaker.shut_until_s) == (FAILURES, FIRST_OPEN_S)
    breaker.begin(FIRST_OPEN_S / 2)  # asked for want of any other, which is no try
    breaker.fail(FIRST_OPEN_S / 2)
    assert breaker.shut_until_s == FIRST_OPEN_S


def test_a_node_that_takes_nothing_for_a_moment_has_not_failed() -> None:
    breaker = Breaker()
    breaker.avoid(0, 1.0)
    assert not breaker.lets_through(0.9)
    assert breaker.lets_through(1.0)
    assert breaker.failures == 0


def test_another_process_under_the_same_id_is_given_a_chance_at_once() -> None:
    breaker = failed(FAILURES + 5)
    breaker.reset()
    assert breaker.lets_through(0)
