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


def test_it_waits_longer_from_failure_to_failure_up_to_a_bound() -> None:
    waits = [failed(times, 100).shut_until_s - 100 for times in range(FAILURES, FAILURES + 12)]
    assert waits[:3] == [FIRST_OPEN_S, 2 * FIRST_OPEN_S, 4 * FIRST_OPEN_S]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_OPEN_S
    assert failed(10_000).shut_until_s == LONGEST_OPEN_S


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
