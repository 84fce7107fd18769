"""Crockford's base32 in lower case, the alphabet of every id and key of ours.

Must not know what is encoded.
"""

from __future__ import annotations

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def encode_base32(value: int, length: int) -> str:
    """Write `value` in exactly `length` characters, most significant first.

    Raises:
        ValueError: the value is negative or needs more than `length` characters.
    """
    if value < 0 or value >> (5 * length):
        raise ValueError(f"value does not fit {length} base32 characters")
    return "".join(ALPHABET[(value >> shift) & 31] for shift in range(5 * (length - 1), -1, -5))
