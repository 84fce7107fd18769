"""What a node remembers of those who were told to wait."""

from __future__ import annotations

import pytest

from node.limits.limiter import (
    Admitted,
    CapReached,
    ConcurrencyLimited,
    Hold,
    Limits,
    Needs,
    NeverFits,
    RateLimited,
    SpendCap,
    Subject,
    Unavailable,
)
from node.limits.prices import Price
from node.limits.waits import GIVEN_BACK_S, MOST_REMEMBERED, Waits

LEAST = Needs(2, 25)
TOLD = RateLimited("requests_per_minute", 60, 0, 9, 9)


def subject(
    org: str = "acme",
    model: str = "b3os/test",
    limit: int | None = 60,
    tokens: int | None = 500,
    cap: SpendCap | None = None,
    key: str = "key_1",
) -> Subject:
    limits = Limits(requests_per_minute=limit, tokens_per_minute=tokens)
    return Subject("req_1", org, "main", key, model, "n1", Price(), limits, cap)


class Clock:
    """Moved by tests."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_seconds_that_are_left_are_told_and_are_enough() -> None:
    waits = Waits(clock := Clock())
    waits.note(subject(), LEAST, TOLD)
    assert waits.refuse(subject(), LEAST) == TOLD
    for now_s, left_s in ((1000.001, 9), (1003, 6), (1003.5, 6), (1008.001, 1), (1008.999, 1)):
        clock.now_s = now_s
        refused = waits.refuse(subject(), LEAST)
        assert isinstance(refused, RateLimited)
        assert (refused.retry_after_s, refused.reset_s) == (left_s, left_s)
        assert now_s + left_s >= 1009
    clock.now_s = 1009
    assert waits.refuse(subject(), LEAST) is None


def test_nobody_else_waits() -> None:
    waits = Waits(Clock())
    waits.note(subject(), LEAST, TOLD)
    for other in (subject(org="b"), subject(model="b3os/b"), subject(limit=61), subject(limit=None)):
        assert waits.refuse(other, LEAST) is None


def test_nothing_else_is_known_beforehand() -> None:
    waits = Waits(Clock())
    for answer in (
        RateLimited("image_bytes_per_minute", 60, 0, 9, 9),
        ConcurrencyLimited(60, 60),
        NeverFits("requests_per_minute", 0, 1),
        Unavailable(),
        Admitted(Hold(subject(), 1, "0f")),
    ):
        waits.note(subject(), LEAST, answer)
        assert waits.refuse(subject(), LEAST) is None


def test_the_last_answer_counts() -> None:
    waits = Waits(clock := Clock())
    waits.note(subject(), LEAST, TOLD)
    clock.now_s += 9
    waits.note(subject(), LEAST, RateLimited("requests_per_minute", 60, 0, 5, 5))
    refused = waits.refuse(subject(), LEAST)
    assert isinstance(refused, RateLimited)
    assert refused.retry_after_s == 5


@pytest.mark.parametrize(("second_s", "until_s"), [(9, 1009), (8, 1008.25)])
def test_of_two_who_were_told_at_once_both_have_waited_long_enough(second_s: int, until_s: float) -> None:
    """Each wait is rounded up by itself."""
    waits = Waits(clock := Clock())
    waits.note(subject(), LEAST, TOLD)
    clock.now_s += 0.25
    waits.note(subject(), LEAST, RateLimited("requests_per_minute", 60, 0, second_s, second_s))
    clock.now_s = until_s - 0.001
    assert waits.refuse(subject(), LEAST) is not None
    clock.now_s = until_s
    assert waits.refuse(subject(), LEAST) is None


def test_another_limit_is_another_wait() -> None:
    waits = Waits(Clock())
    waits.note(subject(), LEAST, TOLD)
    waits.note(subject(limit=6), LEAST, RateLimited("requests_per_minute", 6, 0, 30, 30))
    refused = waits.refuse(subject(limit=6), LEAST)
    assert isinstance(refused, RateLimited)
    assert (refused.limit, refused.retry_after_s) == (6, 30)
    assert waits.refuse(subject(), LEAST) is None


def test_of_too_many_the_first_is_asked_for_again() -> None:
    waits = Waits(Clock())
    for number in range(MOST_REMEMBERED + 1):
        waits.note(subject(org=f"org_{number}"), LEAST, TOLD)
    assert waits.refuse(subject(org="org_0"), LEAST) is None
    assert waits.refuse(subject(org="org_1"), LEAST) == TOLD
    assert len(waits._memories) == MOST_REMEMBERED


def test_tokens_that_are_used_up_are_known_for_a_second_and_to_whoever_needs_as_many() -> None:
    waits = Waits(clock := Clock())
    waits.note(subject(), LEAST, RateLimited("tokens_per_minute", 500, 1, 9, 9))
    clock.now_s += GIVEN_BACK_S / 2
    assert waits.refuse(subject(limit=None), LEAST) == RateLimited("tokens_per_minute", 500, 1, 9, 9)
    for other in (subject(org="b"), subject(model="b3os/b"), subject(tokens=501), subject(tokens=None)):
        assert waits.refuse(other, LEAST) is None
    assert waits.refuse(subject(), Needs()) is None  # a count of tokens needs none
    assert waits.refuse(subject(), Needs(1)) is None
    clock.now_s += GIVEN_BACK_S / 2
    assert waits.refuse(subject(), LEAST) is None


def test_a_cap_that_is_used_up_is_known_for_a_second_for_its_key_whatever_the_model() -> None:
    waits, cap = Waits(clock := Clock()), SpendCap(60, "day")
    told = CapReached(cap, 60, 25)
    waits.note(subject(cap=cap), LEAST, told)
    clock.now_s += GIVEN_BACK_S / 2
    assert waits.refuse(subject(cap=cap), LEAST) == told
    assert waits.refuse(subject(cap=cap, model="b3os/b"), LEAST) == told
    others = (subject(), subject(cap=SpendCap(61, "day")), subject(cap=SpendCap(60, "month")))
    for other in (*others, subject(cap=cap, key="key_2"), subject(cap=cap, org="b")):
        assert waits.refuse(other, LEAST) is None
    assert waits.refuse(subject(cap=cap), Needs(2)) is None
    clock.now_s += GIVEN_BACK_S / 2
    assert waits.refuse(subject(cap=cap), LEAST) is None


def test_of_two_waits_that_are_known_the_longer_is_told_and_a_cap_before_both() -> None:
    waits, cap = Waits(Clock()), SpendCap(60, "day")
    tokens = RateLimited("tokens_per_minute", 500, 0, 30, 30)
    waits.note(subject(), LEAST, TOLD)
    waits.note(subject(), LEAST, tokens)
    assert waits.refuse(subject(), LEAST) == tokens
    assert waits.refuse(subject(), Needs()) == TOLD
    waits.note(subject(cap=cap), LEAST, CapReached(cap, 60, 25))
    assert waits.refuse(subject(cap=cap), LEAST) == CapReached(cap, 60, 25)
