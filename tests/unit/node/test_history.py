"""What earlier lives teach: pauses, honest waits, and when an engine counts as one that can't work."""

from __future__ import annotations

import pytest

from node.engine.history import (
    FIRST_GUESS_S,
    FIRST_PAUSE_S,
    GIVEN_UP_S,
    LONGEST_PAUSE_S,
    LONGEST_WAIT_S,
    MOST_FAILURES,
    STABLE_S,
    History,
    Watchdog,
)


def lived(history: History, begun_s: float, *, start_s: float, life_s: float, has_answered: bool = True) -> float:
    """One life from its start to its end, which is returned."""
    history.note_start(begun_s)
    history.note_ready(begun_s + start_s)
    history.note_end(begun_s + start_s + life_s, has_answered=has_answered)
    return begun_s + start_s + life_s


def pauses(history: History, lives: int, *, life_s: float) -> list[float]:
    now_s, found = 0.0, []
    for _ in range(lives):
        now_s = lived(history, now_s, start_s=1, life_s=life_s) + history.pause_s
        found.append(history.pause_s)
    return found


def test_each_short_life_doubles_the_pause_up_to_a_bound() -> None:
    found = pauses(History(), 8, life_s=STABLE_S - 1)
    assert found == [FIRST_PAUSE_S * factor for factor in (1, 2, 4, 8, 16)] + [LONGEST_PAUSE_S] * 3


def test_a_long_life_makes_the_pause_a_first_one_again() -> None:
    history = History()
    pauses(history, 8, life_s=1)
    assert pauses(history, 1, life_s=STABLE_S) == [FIRST_PAUSE_S]


def test_lives_without_an_answer_are_not_tried_for_ever() -> None:
    history, now_s = History(), 0.0
    for number in range(MOST_FAILURES):
        assert not history.has_given_up, number
        now_s = lived(history, now_s, start_s=1, life_s=1, has_answered=False)
    assert history.has_given_up
    assert (history.pause_s, history.retry_after_s(now_s)) == (GIVEN_UP_S, GIVEN_UP_S)
    lived(history, now_s, start_s=1, life_s=1)  # the card is back
    assert not history.has_given_up


def test_starts_that_fail_count_as_such_lives() -> None:
    history = History()
    for number in range(MOST_FAILURES):
        history.note_start(number)
        history.note_end(number, has_answered=False)
    assert history.has_given_up


def test_an_engine_that_is_killed_while_it_answers_always_comes_back() -> None:
    history = History()
    pauses(history, 100, life_s=1)
    assert not history.has_given_up


def test_a_wait_is_what_the_last_start_took_less_what_has_passed() -> None:
    history = History()
    assert history.retry_after_s(0) == FIRST_GUESS_S
    ended_s = lived(history, 0, start_s=40, life_s=1)
    assert history.retry_after_s(ended_s) == 40 + history.pause_s
    history.note_start(ended_s + 1)
    assert history.retry_after_s(ended_s + 11) == 30
    assert history.retry_after_s(ended_s + 40.5) == 5  # at least a tenth of what it took so far


def test_what_a_death_now_would_cost_is_what_is_told_after_it() -> None:
    history = History()
    pauses(history, 3, life_s=1)
    history.note_start(100)
    history.note_ready(140)
    told = history.forecast_s(141)
    assert history.forecast_s(141) == told  # asking changes nothing
    history.note_end(141, has_answered=True)
    assert history.retry_after_s(141) == told == 40 + history.pause_s


def test_a_wait_is_never_less_than_a_second_nor_longer_than_agents_bear() -> None:
    history = History()
    ended_s = lived(history, 0, start_s=0.01, life_s=1)
    history.note_start(ended_s)
    assert history.retry_after_s(ended_s + 0.01) == 1
    ended_s = lived(history, ended_s, start_s=900, life_s=1)
    assert history.retry_after_s(ended_s) == LONGEST_WAIT_S


def test_an_overdue_start_is_told_later_and_later() -> None:
    history = History()
    history.note_start(0)
    told = [history.retry_after_s(now_s) for now_s in (30, 100, 300, 10_000)]
    assert told == [3, 10, 30, LONGEST_WAIT_S]


def test_restarts_are_counted_without_the_first_start() -> None:
    history = History()
    pauses(history, 3, life_s=1)
    assert history.restarts == 2


@pytest.mark.parametrize(
    ("looks", "stuck"),
    [
        ([(1, 5, 0), (1, 5, 9)], False),
        ([(1, 5, 0), (1, 5, 10)], True),
        ([(1, 5, 0), (1, 6, 9), (1, 6, 18)], False),
        ([(0, 5, 0), (0, 5, 100), (1, 5, 101)], False),
        ([(0, 5, 0), (0, 5, 100), (1, 5, 101), (1, 5, 110)], True),
    ],
    ids=["not yet", "no step", "a step", "idle", "a request after idleness"],
)
def test_a_hanging_engine_is_one_with_requests_and_no_step(looks: list[tuple[int, int, float]], stuck: bool) -> None:
    watchdog = Watchdog(10)
    assert [watchdog.is_stuck(*look) for look in looks][-1] is stuck
