"""What the markers of a JPEG say of its cost."""

from __future__ import annotations

import time

import pytest

from node.images.jpeg import MAX_SEGMENTS, MAX_STRAY_BYTES, read_jpeg
from tests.hostile_images import MIB, behind_soi, jpeg, jpeg_with_profile, scan_bomb, segment

PROFILE = bytes(range(256)) * 1_000


def scans_of(data: bytes) -> int | None:
    found = read_jpeg(data)
    return found.scans if found else None


def pieces(*numbered: tuple[int, int, bytes]) -> bytes:
    """The segments of a profile: which of how many."""
    return b"".join(segment(0xE2, b"ICC_PROFILE\0" + bytes((n, count)) + part) for n, count, part in numbered)


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
    assert scans_of(data) == scans


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
    assert scans_of(data) is None


@pytest.mark.parametrize("unit", [b"\xff", b"\xff\0", b"\xff\xff\0", b"\xff\xd0", b"\0", b"\xff\xe9\0\2"])
@pytest.mark.parametrize("head", [b"\xff\xd8", jpeg()[:-2]])
def test_ten_megabytes_take_a_fraction_of_a_second(head: bytes, unit: bytes) -> None:
    data = head + unit * (10 * MIB // len(unit))
    begun_s = time.thread_time()
    read_jpeg(data)
    assert time.thread_time() - begun_s < 1


def test_a_profile_is_joined_whatever_the_order_of_its_pieces() -> None:
    for data in (jpeg_with_profile(PROFILE), behind_soi(pieces((2, 2, PROFILE[9:60_000]), (1, 2, PROFILE[:9])))):
        found = read_jpeg(data)
        assert found is not None
        assert found.profile in (PROFILE, PROFILE[:60_000])


@pytest.mark.parametrize(
    "numbered",
    [
        [],
        [(1, 2, b"a")],
        [(1, 2, b"a"), (1, 2, b"b")],
        [(1, 2, b"a"), (2, 2, b"b"), (2, 2, b"c")],
        [(1, 2, b"a"), (2, 3, b"b")],
        [(0, 1, b"a")],
        [(n % 256, 255, b"a") for n in range(1, 300)],
    ],
)
def test_a_profile_of_which_a_piece_lacks_or_is_doubled_is_none(numbered: list[tuple[int, int, bytes]]) -> None:
    found = read_jpeg(behind_soi(pieces(*numbered)))
    assert found is not None
    assert found.profile is None


def test_what_stands_behind_the_pixels_or_in_a_second_exif_is_not_followed() -> None:
    first, second = segment(0xE1, b"Exif\0\0first"), segment(0xE1, b"Exif\0\0second")
    progressive = jpeg(progressive=True)
    late = progressive[:-2] + pieces((1, 1, b"late")) + second + progressive[-2:]
    found = read_jpeg(late)
    assert found is not None
    assert (found.profile, found.exif) == (None, b"")
    found = read_jpeg(behind_soi(first + second))
    assert found is not None
    assert found.exif == b"first"
