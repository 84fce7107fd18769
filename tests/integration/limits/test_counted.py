"""What a node counts of its limits, on a real Redis that dies and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from node.engine.port import Usage
from node.limits.counted import LimitCounts, name_refusal
from node.limits.limiter import (
    AlreadySettled,
    CapReached,
    ConcurrencyLimited,
    Limits,
    Needs,
    NeverFits,
    RateLimited,
    Refusal,
    SpendCap,
    Subject,
    Unavailable,
)
from node.limits.opening import open_limits
from node.limits.settlement import Reservation
from shared.ids import new_record_id, new_request_id
from shared.timing import Phases
from tests.integration.limits.parts import MODEL, PRICE, MortalRedis


def subject(limits: Limits, org: str) -> Subject:
    return Subject(new_request_id(), org, "main", "key_1", MODEL, "n1", PRICE, limits)


class Seen:
    """The counts, as Prometheus would read them."""

    def __init__(self, counts: LimitCounts) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(counts)

    def value(self, name: str, **labels: str) -> float | None:
        """Of one series."""
        return self._registry.get_sample_value(f"b3os_{name}", labels)


async def test_admissions_bills_and_an_outage_are_counted(mortal_redis: MortalRedis, tmp_path: Path) -> None:
    counts, org = LimitCounts(), new_record_id("org")
    seen, limits = Seen(counts), Limits(requests_per_minute=2)
    async with open_limits(mortal_redis.url, tmp_path / "spool", "n1", counts) as (desk, _):
        assert seen.value("node_admissions_total", outcome="admitted") == 0
        phases = Phases()
        phases.add("ttft", 120)
        first = await desk.open(subject(limits, org), Needs(), phases)
        second = await desk.open(subject(limits, org), Needs())
        third = await desk.open(subject(limits, org), Needs())
        assert isinstance(first, Reservation)
        assert isinstance(second, Reservation)
        assert isinstance(third, RateLimited)
        async with first:
            first.follow(Usage(100, 20, 64))
            first.note_prefilled()
        assert seen.value("node_admissions_total", outcome="admitted") == 2
        assert seen.value("node_admissions_total", outcome="requests_per_minute") == 1
        assert seen.value("node_settlements_total", outcome="finished") == 1
        assert seen.value("node_bookings_total", booking="settled") == 1
        tokens = {kind: seen.value("node_tokens_total", kind=kind) for kind in ("input", "cached_input", "output")}
        assert tokens == {"input": 100, "cached_input": 64, "output": 20}
        assert seen.value("node_billed_nano_usd_total") == PRICE.cost_nano_usd(100, 20)
        assert seen.value("node_ttft_seconds_sum") == pytest.approx(0.12)
        assert (seen.value("node_store_away"), seen.value("node_spooled_bills")) == (0, 0)

        mortal_redis.kill()
        assert isinstance(await desk.open(subject(limits, new_record_id("org")), Needs()), Unavailable)
        async with second:
            pass
        assert seen.value("node_admissions_total", outcome="unavailable") == 1
        assert seen.value("node_bookings_total", booking="spooled") == 1
        assert (seen.value("node_store_away"), seen.value("node_spooled_bills")) == (1, 1)

        mortal_redis.start()
        async with asyncio.timeout(60):
            while seen.value("node_spooled_bills"):
                await asyncio.sleep(0.01)
        assert seen.value("node_store_away") == 0
        (tmp_path / "spool" / "req_x.bill.aside").touch()
        assert seen.value("node_bills_aside") == 1


@pytest.mark.parametrize(
    ("refusal", "name"),
    [
        (RateLimited("tokens_per_minute", 1, 0, 1, 1), "tokens_per_minute"),
        (ConcurrencyLimited(1, 1), "concurrent_requests"),
        (CapReached(SpendCap(1, "day"), 1, 1), "spend_cap"),
        (NeverFits("tokens_per_minute", 1, 2), "never_fits"),
        (AlreadySettled(), "already_settled"),
        (Unavailable(), "unavailable"),
    ],
)
def test_every_refusal_has_a_name_that_counts_from_zero(refusal: Refusal, name: str) -> None:
    assert name_refusal(refusal) == name
    assert Seen(LimitCounts()).value("node_admissions_total", outcome=name) == 0
