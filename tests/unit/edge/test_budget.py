"""The bytes that bodies may take together, and those of one organization."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from edge.budget import PARTS_OF_RESERVE, RESERVED_PART, SMALL_BYTES, BodyBudget, largest_common_body_bytes
from shared.errors import ApiError

MIB = 1 << 20
LIMIT = 64 * MIB
SHARE = 16 * MIB
RESERVE = LIMIT // RESERVED_PART


def refusal(budget: BodyBudget, org: str, size_bytes: int) -> int | None:
    """The status that an upload of this size gets now."""
    try:
        with budget.lease(org) as lease:
            lease.add(size_bytes)
    except ApiError as error:
        return error.condition.status
    return None


def fill(budget: BodyBudget, held: ExitStack, org: str, size_bytes: int, piece_bytes: int) -> int:
    """Upload bodies of `size_bytes` until one is refused, and keep them; the status of that one."""
    while True:
        lease = held.enter_context(budget.lease(org))
        try:
            for _ in range(size_bytes // piece_bytes):
                lease.add(piece_bytes)
        except ApiError as error:
            return error.condition.status


def test_one_organization_never_holds_more_than_its_share() -> None:
    budget = BodyBudget(LIMIT, SHARE)
    with ExitStack() as held:
        assert fill(budget, held, "greedy", MIB, MIB // 4) == 429
        assert budget.held_bytes == SHARE
        assert refusal(budget, "other", SHARE) is None
        assert refusal(budget, "greedy", MIB) == 429
    assert budget.held_bytes == 0


def test_who_comes_when_all_is_taken_has_to_come_back_and_it_is_not_his_fault() -> None:
    budget = BodyBudget(LIMIT, SHARE)
    with ExitStack() as held:
        for org in "abcdefgh":
            fill(budget, held, org, MIB, MIB)
        assert budget.held_bytes == LIMIT - RESERVE
        assert refusal(budget, "i", MIB) == 503


def test_large_bodies_leave_room_for_small_ones() -> None:
    budget = BodyBudget(LIMIT, SHARE)
    with ExitStack() as held:
        for org in "abcdefgh":
            fill(budget, held, org, MIB, SMALL_BYTES)
        for org in ("a", "i"):
            assert refusal(budget, org, SMALL_BYTES) is None
        assert refusal(budget, "i", SMALL_BYTES + 1) == 503


def test_small_bodies_of_one_leave_room_for_those_of_others() -> None:
    budget = BodyBudget(LIMIT, SHARE)
    with ExitStack() as held:
        for org in "abcdefgh":
            fill(budget, held, org, MIB, MIB)
        assert fill(budget, held, "a", SMALL_BYTES, SMALL_BYTES) == 429
        assert budget.held_bytes == LIMIT - RESERVE + RESERVE // PARTS_OF_RESERVE
        assert refusal(budget, "i", SMALL_BYTES) is None


def test_small_bodies_go_on_in_the_common_room() -> None:
    budget = BodyBudget(LIMIT, SHARE)
    with ExitStack() as held:
        assert fill(budget, held, "a", SMALL_BYTES, SMALL_BYTES) == 429
        assert budget.held_bytes == SHARE + RESERVE // PARTS_OF_RESERVE


def test_a_body_that_grows_takes_nothing_from_small_ones() -> None:
    budget = BodyBudget(LIMIT, SHARE)
    with ExitStack() as held:
        for org in "abc":
            for _ in range(8):
                lease = held.enter_context(budget.lease(org))
                for _ in range(4):
                    lease.add(SMALL_BYTES)
        assert budget.held_bytes == 24 * 4 * SMALL_BYTES
        assert fill(budget, held, "d", SMALL_BYTES, SMALL_BYTES) == 429
        assert budget.held_bytes == 24 * 4 * SMALL_BYTES + RESERVE // PARTS_OF_RESERVE + SHARE


def test_bytes_are_given_back_whatever_happens() -> None:
    budget = BodyBudget(LIMIT, SHARE)

    def fail() -> None:
        with budget.lease("a") as lease:
            lease.add(10)
            lease.add(MIB)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert budget.held_bytes == 0


def test_who_is_refused_holds_nothing_any_more() -> None:
    budget = BodyBudget(LIMIT, SHARE)
    with budget.lease("a") as lease:
        lease.add(SHARE)
        with pytest.raises(ApiError) as caught:
            lease.add(1)
        assert caught.value.response_headers() == {"Retry-After": "1"}
        assert (lease.held_bytes, budget.held_bytes) == (0, 0)


def test_a_head_that_only_announces_holds_nothing() -> None:
    budget = BodyBudget(LIMIT, SHARE)
    with budget.lease("a"), budget.lease("a") as other:
        other.add(SHARE)


def test_the_largest_body_has_room() -> None:
    budget = BodyBudget(LIMIT, LIMIT)
    assert refusal(budget, "a", largest_common_body_bytes(LIMIT)) is None
    assert refusal(budget, "a", largest_common_body_bytes(LIMIT) + 1) == 503
