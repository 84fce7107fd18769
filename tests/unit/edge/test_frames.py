"""Frames pass whole, whatever the chunks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import frames
from edge.frames import FrameCutter, FrameTooLong, render_broken

STREAM = (
    b'event: message_start\ndata: {"type":"message_start"}\n\n'
    b'event: content_block_delta\ndata: {"text":"event: message_stop\\n\\n caf\xc3\xa9"}\n\n'
    b": a comment\n\n"
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


def split_at(data: bytes, points: list[int]) -> list[bytes]:
    edges = [0, *sorted(points), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_any_split_gives_the_same_bytes_in_whole_frames(points: list[int]) -> None:
    cutter = FrameCutter()
    passed = [cutter.feed(chunk) for chunk in split_at(STREAM, points)]
    assert b"".join(passed) == STREAM
    assert all(part.endswith(b"\n\n") for part in passed if part)
    assert cutter.has_ended


@given(st.integers(0, len(STREAM) - 1))
def test_a_stream_cut_anywhere_before_its_end_has_not_ended(at: int) -> None:
    cutter = FrameCutter()
    passed = cutter.feed(STREAM[:at])
    assert passed == b"" or passed.endswith(b"\n\n")
    assert STREAM.startswith(passed)
    assert not cutter.has_ended


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_error_event_ends_a_stream_too(size: int) -> None:
    cutter = FrameCutter()
    stream = b"event: ping\ndata: {}\n\nevent: error\ndata: {}\n\n"
    for at in range(0, len(stream), size):
        cutter.feed(stream[at : at + size])
    assert cutter.has_ended


def test_a_terminal_event_alone_at_the_start_of_a_chunk_is_seen() -> None:
    cutter = FrameCutter()
    cutter.feed(b"event: ping\ndata: {}\n\n")
    cutter.feed(b"event: message_stop\ndata: {}\n\n")
    assert cutter.has_ended


def test_what_is_held_back_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 10)
    with pytest.raises(FrameTooLong):
        FrameCutter().feed(b"data: 123456")


def test_the_event_for_a_lost_node_has_the_contracts_shape() -> None:
    name, data, *rest = render_broken("req_1", "the node was lost").decode().split("\n")
    body = json.loads(data.removeprefix("data: "))
    assert (name, rest) == ("event: error", ["", ""])
    assert (body["type"], body["request_id"]) == ("error", "req_1")
    assert (body["error"]["type"], body["b3os"]) == ("api_error", {"code": "node_unavailable"})
