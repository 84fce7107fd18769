"""From a node token to the rules of one request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edge.auth.limits import LIMITS
from node.limits.limiter import Limits, SpendCap
from node.limits.prices import Price
from node.limits.rules import build_subject, read_cap, read_limits
from shared.node_token import Caller

CALLER = Caller("acme", "main", "key", "key_1", ("infer:run",), {"tokens_per_minute": 5}, None)


def test_a_token_s_rules_are_read() -> None:
    subject = build_subject(CALLER, "req_1", model="b3os/x", node="n1", price=Price(1, 2))
    assert (subject.org, subject.project, subject.key_id, subject.limits, subject.cap) == (
        "acme",
        "main",
        "key_1",
        Limits(tokens_per_minute=5),
        None,
    )
    capped = replace(CALLER, spend_cap={"nano_usd": 7, "period": "month"}, limits={})
    subject = build_subject(capped, "req_1", model="b3os/x", node="n1", price=Price())
    assert (subject.limits, subject.cap) == (Limits(), SpendCap(7, "month"))


def test_every_limit_that_the_edge_knows_is_kept() -> None:
    limits = read_limits({name: number for number, name in enumerate(LIMITS, start=1)})
    assert limits == Limits(1, 2, 3, 4)


@pytest.mark.parametrize("claim", [{"per_week": 1}, {"tokens_per_minute": -1}, {"tokens_per_minute": 1.5}])
def test_a_limit_that_is_not_understood_is_not_passed_over(claim: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="limit"):
        read_limits(claim)


@pytest.mark.parametrize(
    "claim",
    [{}, {"nano_usd": 1}, {"nano_usd": 1, "period": "week"}, {"nano_usd": True, "period": "day"}, {"period": "day"}],
)
def test_a_cap_that_is_not_understood_is_not_passed_over(claim: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cap|limit"):
        read_cap(claim)
