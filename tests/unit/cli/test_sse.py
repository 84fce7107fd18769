"""Events out of bytes, whatever the pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.cli.user import sse
from shared.cli.user.sse import EventTooLong, ServerSentEvent, SseParser

STREAM = (
    "\ufeffevent: a\ndata: één\n\n"
    ": a comment\ndata:two\ndata:  lines\n\n"
    "event: named but empty\n\n"
    "id: 7\nretry: 10\nunknown: x\ndata\n\n"
    "data: 👩‍💻 {}\n\n"
    "data: never ended\n"
)
EVENTS = [
    ServerSentEvent("a", "één"),
    ServerSentEvent("message", "two\n lines"),
    ServerSentEvent("message", ""),
    ServerSentEvent("message", "👩‍💻 {}"),
]


def parse(raw: bytes, cuts: list[int]) -> list[ServerSentEvent]:
    parser = SseParser()
    bounds = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    return [event for begin, end in itertools.pairwise(bounds) for event in parser.feed(raw[begin:end])]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_chunks_of_any_size_give_the_same_events(newline: str, size: int) -> None:
    raw = STREAM.replace("\n", newline).encode()
    assert parse(raw, list(range(0, len(raw), size))) == EVENTS


@given(st.lists(st.integers(0, 500), max_size=20), st.sampled_from(["\n", "\r\n", "\r"]))
def test_chunks_cut_anywhere_give_the_same_events(cuts: list[int], newline: str) -> None:
    assert parse(STREAM.replace("\n", newline).encode(), cuts) == EVENTS


def test_newlines_may_be_mixed() -> None:
    assert parse(b"data: a\r\ndata: b\rdata: c\n\r\n", [8, 9, 17]) == [ServerSentEvent("message", "a\nb\nc")]


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    assert parse(b"data: \xff\n\n", []) == [ServerSentEvent("message", "\ufffd")]


@pytest.mark.parametrize("part", [b"x" * 100, b"data: " + b"x" * 94 + b"\n"])
def test_an_event_without_end_is_given_up(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_BYTES", 1000)
    parser = SseParser()
    for _ in range(10):
        assert parser.feed(part) == []
    with pytest.raises(EventTooLong):
        parser.feed(part)


def test_many_events_are_not_one_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_BYTES", 1000)
    parser = SseParser()
    assert [len(parser.feed(b"data: " + b"x" * 900 + b"\n\n")) for _ in range(20)] == [1] * 20
