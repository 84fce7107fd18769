"""What a node remembers of those who were told to wait."""

from __future__ import annotations

import pytest

from node.limits.limiter import (
    Admitted,
    CapReached,
    ConcurrencyLimited,
    Hold,
    Limits,
    NeverFits,
    RateLimited,
    SpendCap,
    Subject,
    Unavailable,
)
from node.limits.prices import Price
from node.limits.waits import MOST_REMEMBERED, Waits

TOLD = RateLimited("requests_per_minute", 60, 0, 9, 9)


def subject(org: str = "acme", model: str = "b3os/test", limit: int | None = 60) -> Subject:
    return Subject("req_1", org, "main", "key_1", model, "n1", Price(), Limits(requests_per_minute=limit))


class Clock:
    """Moved by tests."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_seconds_that_are_left_are_told_and_are_enough() -> None:
    waits = Waits(clock := Clock())
    waits.note(subject(), TOLD)
    assert waits.refuse(subject()) == TOLD
    for now_s, left_s in ((1000.001, 9), (1003, 6), (1003.5, 6), (1008.001, 1), (1008.999, 1)):
        clock.now_s = now_s
        refused = waits.refuse(subject())
        assert refused is not None
        assert (refused.retry_after_s, refused.reset_s) == (left_s, left_s)
        assert now_s + left_s >= 1009
    clock.now_s = 1009
    assert waits.refuse(subject()) is None


def test_nobody_else_waits() -> None:
    waits = Waits(Clock())
    waits.note(subject(), TOLD)
    for other in (subject(org="b"), subject(model="b3os/b"), subject(limit=61), subject(limit=None)):
        assert waits.refuse(other) is None


def test_only_the_limit_of_requests_is_known_beforehand() -> None:
    waits = Waits(Clock())
    for answer in (
        RateLimited("tokens_per_minute", 60, 0, 9, 9),
        RateLimited("image_bytes_per_minute", 60, 0, 9, 9),
        ConcurrencyLimited(60, 60),
        CapReached(SpendCap(60, "day"), 60, 1),
        NeverFits("requests_per_minute", 0, 1),
        Unavailable(),
        Admitted(Hold(subject(), 1, "0f")),
    ):
        waits.note(subject(), answer)
        assert waits.refuse(subject()) is None


def test_the_last_answer_counts() -> None:
    waits = Waits(clock := Clock())
    waits.note(subject(), TOLD)
    clock.now_s += 9
    waits.note(subject(), RateLimited("requests_per_minute", 60, 0, 5, 5))
    refused = waits.refuse(subject())
    assert refused is not None
    assert refused.retry_after_s == 5


@pytest.mark.parametrize(("second_s", "until_s"), [(9, 1009), (8, 1008.25)])
def test_of_two_who_were_told_at_once_both_have_waited_long_enough(second_s: int, until_s: float) -> None:
    """Each wait is rounded up by itself."""
    waits = Waits(clock := Clock())
    waits.note(subject(), TOLD)
    clock.now_s += 0.25
    waits.note(subject(), RateLimited("requests_per_minute", 60, 0, second_s, second_s))
    clock.now_s = until_s - 0.001
    assert waits.refuse(subject()) is not None
    clock.now_s = until_s
    assert waits.refuse(subject()) is None


def test_another_limit_is_another_wait() -> None:
    waits = Waits(Clock())
    waits.note(subject(), TOLD)
    waits.note(subject(limit=6), RateLimited("requests_per_minute", 6, 0, 30, 30))
    refused = waits.refuse(subject(limit=6))
    assert refused is not None
    assert (refused.limit, refused.retry_after_s) == (6, 30)
    assert waits.refuse(subject()) is None


def test_of_too_many_the_first_is_asked_for_again() -> None:
    waits = Waits(Clock())
    for number in range(MOST_REMEMBERED + 1):
        waits.note(subject(org=f"org_{number}"), TOLD)
    assert waits.refuse(subject(org="org_0")) is None
    assert waits.refuse(subject(org="org_1")) == TOLD
    assert len(waits._waits) == MOST_REMEMBERED
