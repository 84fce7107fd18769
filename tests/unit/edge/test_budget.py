"""The bytes that bodies may take together."""

from __future__ import annotations

import pytest

from edge.budget import BodyBudget
from shared.errors import ApiError


def test_what_does_not_fit_beside_the_others_has_to_come_back() -> None:
    budget = BodyBudget(100)
    with budget.lease() as first, budget.lease() as second:
        first.add(60)
        second.add(40)
        with pytest.raises(ApiError) as caught:
            first.add(1)
        assert caught.value.condition.status == 503
        assert caught.value.response_headers()["Retry-After"] == "1"
    assert budget.held_bytes == 0


def test_bytes_are_given_back_whatever_happens() -> None:
    budget = BodyBudget(100)

    def fail() -> None:
        with budget.lease() as lease:
            lease.add(100)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert budget.held_bytes == 0


def test_a_head_that_only_announces_holds_nothing() -> None:
    budget = BodyBudget(100)
    with budget.lease(), budget.lease() as other:
        other.add(100)
