"""The words of refusals."""

from __future__ import annotations

import pytest

from node.limits.limiter import ConcurrencyLimited, Limits, NeverFits, RateLimited, Subject
from node.limits.prices import Price
from node.limits.told import Outcome, build_refusal

SUBJECT = Subject("req_1", "acme", "main", "key_1", "b3os/a", "n1", Price(0, 0), Limits())


@pytest.mark.parametrize(("wait_s", "words"), [(1, "; retry in 1 second"), (2, "; retry in 2 seconds")])
def test_a_limit_tells_when_to_come_back(wait_s: int, words: str) -> None:
    rate = RateLimited("requests_per_minute", 5, 0, wait_s, wait_s)
    at_once = ConcurrencyLimited(5, 5, wait_s)
    told: list[tuple[Outcome, str]] = [(rate, words), (at_once, f"{words}, or when one of them has ended")]
    for outcome, end in told:
        error = build_refusal(outcome, SUBJECT)
        assert error.message.endswith(end)
        assert error.retry_after_s == wait_s


def test_a_limit_of_nothing_is_told_as_what_it_is_and_promises_nothing() -> None:
    words = {
        NeverFits("concurrent_requests", 0, 1): "the organization's limit of requests at once is 0",
        NeverFits("requests_per_minute", 0, 1): "the organization's limit of requests a minute for b3os/a is 0",
        NeverFits("tokens_per_minute", 0, 9): "the organization's limit of tokens a minute for b3os/a is 0",
    }
    for outcome, message in words.items():
        error = build_refusal(outcome, SUBJECT)
        assert (error.condition.status, error.message, error.param) == (400, message, None)
        assert error.retry_after_s is None
        assert error.response_headers() == {"x-should-retry": "false"}
