"""What a JPEG would cost, from its markers, before a decoder sees it, and what they say of colours and turns.

Decides which files are no sane JPEG: Pillow reads what lies between segments byte by byte and each segment in Python,
so a file of 10 MiB can take it ten seconds before the first pixel. Linear; the bytes themselves are passed over in C.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_SEGMENTS = 4000
"""A photograph has a dozen; a large profile adds 255, a hundred scans with their tables some hundreds."""
MAX_STRAY_BYTES = 65_536
"""Between segments, fill bytes among them: none in a good file, a few where a camera pads."""
_MARKER = re.compile(rb"\xff[^\x00\xff]")
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_START_OF_SCAN, _END = 0xDA, 0xD9
_EXIF, _EXIF_NAME = 0xE1, b"Exif\0\0"
_PROFILE, _PROFILE_NAME = 0xE2, b"ICC_PROFILE\0"
_FIRST_WITH_LENGTH = 0xC0
_WITHOUT_LENGTH = range(0xD0, 0xD9)
"""Restarts, and the start of an image."""


@dataclass(frozen=True, slots=True)
class Jpeg:
    """What the markers say.

    Attributes:
        scans: how often the whole picture is gone through.
        profile: the ICC profile, if there is a whole one.
        exif: the first, as `read_orientation` takes it.
    """

    scans: int
    profile: bytes | None
    exif: bytes


def read_jpeg(data: bytes) -> Jpeg | None:
    """The markers of a file; None if this is no sane JPEG.

    Follows them as libjpeg does, to the end of the first image; what comes behind that is never decoded.
    """
    place, scans, segments, stray_bytes = 2, 0, 0, 0
    is_in_scan = False
    pieces: list[bytes] = []
    exif: bytes | None = None
    while found := (_MARKER_IN_SCAN if is_in_scan else _MARKER).search(data, place):
        marker = data[found.end() - 1]
        if marker == _END:
            break
        stray_bytes += 0 if is_in_scan else found.start() - place
        place, segments = found.end(), segments + 1
        is_in_scan = False
        if marker >= _FIRST_WITH_LENGTH and marker not in _WITHOUT_LENGTH:
            length = int.from_bytes(data[place : place + 2], "big")
            if length < 2:
                return None
            if not scans and marker == _PROFILE and data.startswith(_PROFILE_NAME, place + 2):
                pieces.append(data[place + 2 + len(_PROFILE_NAME) : place + length])
            elif not scans and marker == _EXIF and exif is None and data.startswith(_EXIF_NAME, place + 2):
                exif = data[place + 2 + len(_EXIF_NAME) : place + length]
            place += length
            is_in_scan = marker == _START_OF_SCAN
            scans += is_in_scan
        if segments > MAX_SEGMENTS or stray_bytes > MAX_STRAY_BYTES:
            return None
    return Jpeg(scans, _join_profile(pieces), exif or b"") if scans else None


def _join_profile(pieces: list[bytes]) -> bytes | None:
    """As libjpeg joins it: each piece says which of how many it is, and there is each of them once."""
    if not 1 <= len(pieces) <= 255:
        return None
    pieces = sorted(pieces)
    if [piece[:2] for piece in pieces] != [bytes((number, len(pieces))) for number in range(1, len(pieces) + 1)]:
        return None
    return b"".join(piece[2:] for piece in pieces)
