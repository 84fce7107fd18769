"""Records as text, the order of ids, and names that can't leave their organization."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.ids import new_request_id
from shared.org_keys import org_key, record_key
from shared.request_log import KEEP_S, LogFilter, RequestRecord, created_ms_of, decode_record, oldest_id
from shared.usage import UsageRow, build_rows, read_count

RECORD = RequestRecord("req_1", 5, "key_1", "main", "b3os/test", "n1", "finished", 200, cost_nano_usd=2**53 + 1)
times = st.integers(0, 2**48 - 1)


def test_a_record_reads_back_as_it_was_written() -> None:
    whole = replace(RECORD, stop_reason="end_turn", ttft_ms=1.5, phases_ms={"parse": 0.25})
    assert decode_record(whole.encode()) == whole


def test_fields_of_a_newer_version_are_left_out_and_missing_ones_have_defaults() -> None:
    stored = orjson.loads(RECORD.encode()) | {"from_tomorrow": 1}
    del stored["price"]
    assert decode_record(orjson.dumps(stored).decode()) == RECORD


@given(times)
def test_an_id_tells_its_time(at_ms: int) -> None:
    assert created_ms_of(new_request_id(at_ms)) == at_ms


@given(times)
def test_ids_of_the_last_30_days_are_kept_and_older_ones_are_not(at_ms: int) -> None:
    assert new_request_id(at_ms) > oldest_id(at_ms)
    assert new_request_id(at_ms) < oldest_id(at_ms + KEEP_S * 1000 + 1)
    assert new_request_id(at_ms) >= oldest_id(at_ms + KEEP_S * 1000)


def test_a_filter_without_wishes_takes_all() -> None:
    assert LogFilter().matches(RECORD)
    assert not LogFilter(status="429").matches(RECORD)


@pytest.mark.parametrize("org", ["", "a}b", "{a", "a b", "a" * 65, "a\nb"])
def test_no_organization_s_id_breaks_out_of_its_names(org: str) -> None:
    with pytest.raises(ValueError, match="organization"):
        record_key(org, "req_1")


def test_names_hold_the_organization_as_hash_tag() -> None:
    assert org_key("acme", "usage", "2026-11-30") == "b3os:{acme}:usage:2026-11-30"


def test_a_day_s_counters_become_rows() -> None:
    counters = {
        "key_b b3os/x requests": "2",
        "key_a b3os/x requests": "1",
        "key_a b3os/x cost_nano_usd": "9007199254740993",
        "key_a b3os/x from_tomorrow": "1",
    }
    found = [read_count("2026-11-30", name, value) for name, value in counters.items()]
    assert build_rows(count for count in found if count is not None) == [
        UsageRow("2026-11-30", "key_a", "b3os/x", requests=1, cost_nano_usd=2**53 + 1),
        UsageRow("2026-11-30", "key_b", "b3os/x", requests=2),
    ]
