"""How long a sender of a body may take."""

from __future__ import annotations

import pytest

from shared.pace import GRACE_S, LEAST_BYTES_PER_S, TOTAL_S, UploadPace

MIB = 1 << 20


def seconds_of(pieces_bytes: list[int], every_s: float) -> float:
    """When it is over for who sends these pieces at such distances, and then nothing."""
    pace = UploadPace(1000.0)
    for at, piece_bytes in enumerate(pieces_bytes, 1):
        now_s = 1000.0 + at * every_s
        if now_s >= pace.due_at_s:
            break
        pace.count(piece_bytes, now_s)
    return pace.due_at_s - 1000.0


def test_silence_has_an_end() -> None:
    assert seconds_of([], 1) == GRACE_S


@pytest.mark.parametrize("piece_bytes", [1, 100])
def test_a_drip_buys_next_to_nothing(piece_bytes: int) -> None:
    assert GRACE_S < seconds_of([piece_bytes] * 10_000, 0.1) < GRACE_S + 3


def test_nearly_all_at_once_buys_no_long_silence() -> None:
    assert seconds_of([31 * MIB], 0.01) == pytest.approx(GRACE_S + 0.01)


def test_half_the_speed_lasts_twice_the_grace() -> None:
    half = LEAST_BYTES_PER_S // 2
    assert seconds_of([half] * 10_000, 1) == pytest.approx(2 * GRACE_S, rel=0.05)


def test_who_keeps_the_speed_has_all_the_time() -> None:
    assert seconds_of([LEAST_BYTES_PER_S] * 10_000, 1) == TOTAL_S


def test_a_pause_after_steady_bytes_is_forgiven() -> None:
    pace = UploadPace(0)
    for now_s in range(1, 20):
        pace.count(10 * LEAST_BYTES_PER_S, now_s)
    assert pace.due_at_s == 19 + GRACE_S
