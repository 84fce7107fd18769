"""The turn in EXIF data."""

from __future__ import annotations

import struct

import pytest

from node.images.exif import read_orientation


def exif(*entries: tuple[int, int, int, int], order: str = "<", place: int = 8) -> bytes:
    head = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, place)
    body = b"".join(struct.pack(f"{order}HHIHH", *entry, 0) for entry in entries)
    return head + bytes(place - 8) + struct.pack(f"{order}H", len(entries)) + body + bytes(4)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("turn", range(1, 9))
def test_the_turn_is_read_in_both_orders_of_bytes(order: str, turn: int) -> None:
    assert read_orientation(exif((0x010F, 2, 9, 9), (0x0112, 3, 1, turn), order=order, place=20)) == turn


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"II*\0",
        b"II*\0\xff\xff\xff\xff",
        b"II*\0\x08\0\0\0",
        b"II*\0\x08\0\0\0\xff\xff",
        b"XX" + exif((0x0112, 3, 1, 6))[2:],
        exif((0x0112, 4, 1, 6)),
        exif((0x0112, 3, 2, 6)),
        exif((0x0112, 3, 1, 0)),
        exif((0x0112, 3, 1, 9)),
        exif((0x0112, 3, 1, 6))[:20],
    ],
)
def test_whatever_browsers_pass_over_turns_nothing(data: bytes) -> None:
    assert read_orientation(data) == 1


def test_the_first_word_on_it_counts_though_the_directory_is_cut() -> None:
    assert read_orientation(exif((0x0112, 3, 1, 6), (0x0112, 3, 1, 3))[:-4]) == 6
    assert read_orientation(exif((0x0112, 3, 1, 6), (0x0112, 3, 1, 3))[:24]) == 6
