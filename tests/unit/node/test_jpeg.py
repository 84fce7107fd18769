"""What the markers of a JPEG say of its cost."""

from __future__ import annotations

import time

import pytest

from node.images.jpeg import MAX_SEGMENTS, MAX_STRAY_BYTES, count_scans
from tests.hostile_images import MIB, behind_soi, jpeg, scan_bomb, segment


@pytest.mark.parametrize(
    ("data", "scans"),
    [
        (jpeg(), 1),
        (jpeg(progressive=True), 10),
        (scan_bomb(64, 64, 50), 60),
        (behind_soi(segment(0xE1, jpeg(progressive=True))), 1),  # a thumbnail is not looked at
        (jpeg() + jpeg(progressive=True), 1),  # nor what stands behind
        (jpeg(restart_marker_blocks=1), 1),
        (jpeg()[:-2], 1),
        (behind_soi(b"\xff" * 100), 1),
        (behind_soi(b"\xff" * MAX_STRAY_BYTES), 1),
        (behind_soi(segment(0xE9, b"") * 1_000), 1),
    ],
)
def test_scans_are_counted_to_the_end_of_the_first_image(data: bytes, scans: int) -> None:
    assert count_scans(data) == scans


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8\xff\xe0\0",
        b"\xff\xd8\xff\xe0\0\1" + jpeg(),
        jpeg()[:100],
        behind_soi(b"\xff" * (MAX_STRAY_BYTES + 1)),
        behind_soi(segment(0xE9, b"") + bytes(MAX_STRAY_BYTES + 1)),
        behind_soi(b"\xff\0" * MAX_STRAY_BYTES),
        behind_soi(segment(0xE9, b"") * (MAX_SEGMENTS + 1)),
        behind_soi(b"\xff\xd0" * (MAX_SEGMENTS + 1)),
        behind_soi(b"\xff\1" * (MAX_SEGMENTS + 1)),
    ],
    ids=range(11),
)
def test_what_only_costs_time_is_not_sane(data: bytes) -> None:
    assert count_scans(data) is None


@pytest.mark.parametrize("unit", [b"\xff", b"\xff\0", b"\xff\xff\0", b"\xff\xd0", b"\0", b"\xff\xe9\0\2"])
@pytest.mark.parametrize("head", [b"\xff\xd8", jpeg()[:-2]])
def test_ten_megabytes_take_a_fraction_of_a_second(head: bytes, unit: bytes) -> None:
    data = head + unit * (10 * MIB // len(unit))
    begun_s = time.thread_time()
    count_scans(data)
    assert time.thread_time() - begun_s < 1
