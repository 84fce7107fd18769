"""The turn that EXIF data ask for, read as browsers read it.

Decides which entry counts: the first for the orientation in the first directory, one short number. Must not know
where the data come from. Pillow reads more than that, XMP and text among it, which no browser follows.
"""

from __future__ import annotations

import struct

UNTURNED = 1
_ORIENTATION, _SHORT = 0x0112, 3
_ENTRY_BYTES = 12
_BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}


def read_orientation(exif: bytes) -> int:
    """From 1 to 8; 1, which is no turn, where nothing else is said.

    Args:
        exif: from the mark of its byte order on.
    """
    order = _BYTE_ORDERS.get(exif[:4])
    if order is None or len(exif) < 8:
        return UNTURNED
    (place,) = struct.unpack_from(f"{order}I", exif, 4)
    if place + 2 > len(exif):
        return UNTURNED
    (count,) = struct.unpack_from(f"{order}H", exif, place)
    entries = exif[place + 2 : place + 2 + count * _ENTRY_BYTES]
    entries = entries[: len(entries) // _ENTRY_BYTES * _ENTRY_BYTES]
    for tag, kind, values, value in struct.iter_unpack(f"{order}HHIH2x", entries):
        if (tag, kind, values) == (_ORIENTATION, _SHORT, 1):
            return value if 1 <= value <= 8 else UNTURNED
    return UNTURNED
