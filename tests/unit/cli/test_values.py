"""Amounts, times, documents and images of the command line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.cli.user.attach import media_type_of
from shared.cli.user.document import NotJson, dig, number_at, objects_at, parse_json, text_at
from shared.cli.user.money import parse_cap, render_usd
from shared.cli.user.when import parse_day, parse_expiry

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "cap"),
    [
        ("5/day", {"nano_usd": 5_000_000_000, "period": "day"}),
        ("$12.50/month", {"nano_usd": 12_500_000_000, "period": "month"}),
        ("0.000000001/total", {"nano_usd": 1, "period": "total"}),
    ],
)
def test_a_cap_is_whole_nano_dollars(text: str, cap: dict[str, object]) -> None:
    assert parse_cap(text) == cap


@pytest.mark.parametrize(
    "text", ["", "5", "5/", "5/week", "/day", "0/day", "0.0/day", "-5/day", "1e3/day", "5.0000000001/day", "nan/day"]
)
def test_what_is_no_cap_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="dollars and a period"):
        parse_cap(text)


@given(st.integers(1, 10**17))
def test_dollars_are_exact(nano_usd: int) -> None:
    shown = render_usd(nano_usd)
    assert parse_cap(shown + "/day") == {"nano_usd": nano_usd, "period": "day"}
    assert render_usd(-nano_usd) == "-" + shown


def test_dollars_have_cents() -> None:
    assert [render_usd(each) for each in (0, 1_500_000_000, 1_000)] == ["$0.00", "$1.50", "$0.000001"]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("12h", "2026-12-01T00:00:00Z"),
        ("30d", "2026-12-30T12:00:00Z"),
        ("2w", "2026-12-14T12:00:00Z"),
        ("2026-12-31", "2027-01-01T00:00:00Z"),
        ("2026-12-31T10:00:00+02:00", "2026-12-31T08:00:00Z"),
        ("2026-12-31T10:00:00Z", "2026-12-31T10:00:00Z"),
    ],
)
def test_an_expiry_is_a_time_in_utc(text: str, at: str) -> None:
    assert parse_expiry(text, NOW) == at


@pytest.mark.parametrize("text", ["", "30", "d", "tomorrow", "2026-13-01", "2026-12-31T10:00:00", "1y"])
def test_what_is_no_expiry_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the command has the words
        parse_expiry(text, NOW)


def test_days_are_those_of_the_calendar() -> None:
    assert parse_day("2026-11-30") == "2026-11-30"
    for text in ("2026-11-31", "30.11.2026", "20261130", "2026-11-30T00:00"):
        with pytest.raises(ValueError):  # noqa: PT011 - the command has the words
            parse_day(text)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"NaN", b"[1e999]", b"[" * 200_000, b'{"a": Infinity}'])
def test_what_could_not_be_printed_as_json_is_not_read_as_such(raw: bytes) -> None:
    with pytest.raises(NotJson):
        parse_json(raw)


def test_reading_of_documents_takes_no_shape_for_granted() -> None:
    document = {"a": {"b": "x", "n": True, "i": 3}, "list": [{"x": 1}, 2, None]}
    assert dig(document, "a", "b", "c") is None
    assert text_at(document, "a", "b") == "x"
    assert text_at(document, "a") == ""
    assert text_at([], "a") == ""
    assert number_at(document, "a", "n") is None
    assert number_at(document, "a", "i") == 3
    assert objects_at(document, "list") == [{"x": 1}]
    assert objects_at(document, "a") == []


@pytest.mark.parametrize(
    ("raw", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WAVE", None),
        (b"%PDF-1.7", None),
        (b"", None),
    ],
)
def test_images_are_known_by_their_first_bytes(raw: bytes, media_type: str | None) -> None:
    assert media_type_of(raw) == media_type
