"""Claims before and after rendering, and prices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.limits.estimate import Claim, estimated_claim, exact_claim
from node.limits.prices import MOST_NANO_USD, Price

sizes = st.integers(0, 10**8)


def test_four_bytes_are_a_token_and_a_part_of_one_is_one() -> None:
    assert estimated_claim(400, 50, 1000) == Claim(100, 50)
    assert estimated_claim(401, 50, 1000) == Claim(101, 50)
    assert estimated_claim(0, 50, 1000) == Claim(1, 50)


def test_max_tokens_beyond_the_window_is_capped_to_what_is_left() -> None:
    assert exact_claim(100, 128_000, 8192) == Claim(100, 8092)
    assert exact_claim(100, 8092, 8192).tokens == 8192
    assert estimated_claim(10**9, 128_000, 8192) == Claim(8192, 0)


def test_a_guess_alone_never_makes_a_request_too_large_for_its_limit() -> None:
    assert estimated_claim(40_000, 500, 100_000, tokens_per_minute=5000) == Claim(4500, 500)
    assert estimated_claim(40_000, 500, 100_000, tokens_per_minute=10_500) == Claim(10_000, 500)


def test_an_answer_too_large_for_its_limit_stays_too_large() -> None:
    assert estimated_claim(400, 6000, 100_000, tokens_per_minute=5000).tokens == 6100
    assert estimated_claim(400, 5000, 100_000, tokens_per_minute=5000).tokens == 5100


@given(sizes, sizes, st.integers(16, 10**6), st.none() | st.integers(1, 10**6))
def test_a_claim_fits_the_window(text_bytes: int, max_tokens: int, window: int, limit: int | None) -> None:
    for claim in (
        estimated_claim(text_bytes, max_tokens, window, limit),
        exact_claim(text_bytes, max_tokens, window),
    ):
        assert claim.input_tokens >= 0
        assert 0 <= claim.output_tokens <= max_tokens
        assert claim.tokens <= window


def test_cost_is_whole_nano_dollars() -> None:
    assert Price(3, 15).cost_nano_usd(100, 20) == 600
    assert Price().cost_nano_usd(10**9, 10**9) == 0


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 10**4), st.integers(0, 10**4))
def test_cost_is_exact(input_price: int, output_price: int, inputs: int, outputs: int) -> None:
    cost = Price(input_price, output_price).cost_nano_usd(inputs, outputs)
    assert cost == sum([input_price] * inputs) + sum([output_price] * outputs)


def test_a_version_is_the_prices_themselves() -> None:
    assert Price(3, 15).version == "in3-out15"
    assert Price(31, 5).version != Price(3, 15).version


@pytest.mark.parametrize(("price", "counts"), [(Price(1, 1), (-1, 0)), (Price(1, 1), (0, -1))])
def test_a_negative_count_is_no_credit(price: Price, counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="negative"):
        price.cost_nano_usd(*counts)


def test_prices_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Price(-1, 0)
    assert Price(MOST_NANO_USD, 0).cost_nano_usd(1, 0) == MOST_NANO_USD
    with pytest.raises(ValueError, match="price is wrong"):
        Price(MOST_NANO_USD, 1).cost_nano_usd(1, 1)
