"""Names are counted in a bounded memory from which a flood of others drives nobody who has to wait."""

from __future__ import annotations

from edge.rates import Allowance, Rates, TooSoon
from tests.unit.edge.test_failures import Clock


def one(name: str = "a", burst: float = 3) -> list[Allowance]:
    return [Allowance(name, 60, burst)]


def test_after_a_burst_one_waits_for_each_next_turn() -> None:
    clock = Clock()
    rates = Rates(clock)
    assert [rates.take(one()) for _ in range(4)] == [None, None, None, TooSoon("a", 1)]
    clock.now_s += 1
    assert [rates.take(one()) for _ in range(2)] == [None, TooSoon("a", 1)]
    clock.now_s += 100
    assert [rates.take(one()) for _ in range(4)] == [None, None, None, TooSoon("a", 1)]


def test_waiting_as_long_as_told_is_enough() -> None:
    clock = Clock()
    rates = Rates(clock)
    slow = [Allowance("a", 7, 2)]
    for _ in range(50):
        refused = rates.take(slow)
        if refused is not None:
            clock.now_s += refused.wait_s
            assert rates.take(slow) is None


def test_a_refused_request_counts_nowhere() -> None:
    clock = Clock()
    rates = Rates(clock)
    both = [*one("key", 1), *one("org", 2)]
    assert rates.take(both) is None
    assert [rates.take(both) for _ in range(9)] == [TooSoon("key", 1)] * 9
    assert rates.take([*one("other", 1), *one("org", 2)]) is None
    assert rates.take([*one("third", 1), *one("org", 2)]) == TooSoon("org", 1)


def test_a_flood_of_names_gives_nobody_his_burst_back() -> None:
    clock = Clock()
    rates = Rates(clock, capacity=100)
    for _ in range(3):
        rates.take(one("waiting"))
    for at in range(10_000):
        rates.take(one(f"flood {at}"))
        assert len(rates) <= 101
    assert rates.take(one("waiting")) is not None


def test_names_that_need_not_wait_are_forgotten_first() -> None:
    clock = Clock()
    rates = Rates(clock, capacity=100)
    for round_ in range(50):
        clock.now_s += 5
        assert all(rates.take(one(f"{round_} {at}")) is None for at in range(100))
    assert len(rates) <= 101


def test_where_all_have_to_wait_the_rest_is_as_one() -> None:
    clock = Clock()
    rates = Rates(clock, capacity=10)
    for at in range(10):
        rates.take(one(str(at)))
    answers = [rates.take(one(f"late {at}")) for at in range(5)]
    assert [answer is None for answer in answers] == [True, True, True, False, False]
    assert rates.take(one("3")) is None
