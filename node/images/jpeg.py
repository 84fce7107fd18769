"""What a JPEG would cost, from its markers, before a decoder sees it.

Decides which files are no sane JPEG: Pillow reads what lies between segments byte by byte and each segment in Python,
so a file of 10 MiB can take it ten seconds before the first pixel. Linear; the bytes themselves are passed over in C.
"""

from __future__ import annotations

import re

MAX_SEGMENTS = 4000
"""A photograph has a dozen; a large profile adds 255, a hundred scans with their tables some hundreds."""
MAX_STRAY_BYTES = 65_536
"""Between segments, fill bytes among them: none in a good file, a few where a camera pads."""
_MARKER = re.compile(rb"\xff[^\x00\xff]")
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_START_OF_SCAN, _END = 0xDA, 0xD9
_FIRST_WITH_LENGTH = 0xC0
_WITHOUT_LENGTH = range(0xD0, 0xD9)
"""Restarts, and the start of an image."""


def count_scans(data: bytes) -> int | None:
    """How often the whole picture is gone through; None if this is no sane JPEG.

    Follows markers as libjpeg does, to the end of the first image; what comes behind that is never decoded.
    """
    place, scans, segments, stray_bytes = 2, 0, 0, 0
    is_in_scan = False
    while found := (_MARKER_IN_SCAN if is_in_scan else _MARKER).search(data, place):
        marker = data[found.end() - 1]
        if marker == _END:
            return scans or None
        stray_bytes += 0 if is_in_scan else found.start() - place
        place, segments = found.end(), segments + 1
        is_in_scan = False
        if marker >= _FIRST_WITH_LENGTH and marker not in _WITHOUT_LENGTH:
            length = int.from_bytes(data[place : place + 2], "big")
            if length < 2:
                return None
            place += length
            is_in_scan = marker == _START_OF_SCAN
            scans += is_in_scan
        if segments > MAX_SEGMENTS or stray_bytes > MAX_STRAY_BYTES:
            return None
    return scans or None
