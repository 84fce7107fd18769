"""ICC profiles as bytes: those that the numbers of a PNG amount to, and foreign ones as browsers read them.

Decides when numbers say anything but sRGB. Must not know pixels, nor what applies a profile.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MAX_PROFILE_BYTES = 4 << 20
"""Those of printing presses have up to 3 MB."""


class Vector(NamedTuple):
    """Three numbers: a colour's X, Y and Z, or a row of a matrix."""

    x: float
    y: float
    z: float


Matrix = tuple[Vector, Vector, Vector]
Chromaticities = tuple[float, ...]
"""x and y of white, red, green and blue, as in `cHRM`."""

_SRGB: Chromaticities = (0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
_GAMUTS = {
    1: _SRGB,
    9: (0.3127, 0.3290, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046),
    12: (0.3127, 0.3290, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),
}
"""By the numbers of ITU-T H.273: sRGB's, BT.2020's, Display P3's."""
_CURVE_OF_SRGB = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
_CURVE_OF_VIDEO = (2.4,)
"""As screens show it (BT.1886), not as cameras write it."""
_CURVES: dict[int, tuple[float, ...]] = {
    1: _CURVE_OF_VIDEO,
    4: (2.2,),
    5: (2.8,),
    6: _CURVE_OF_VIDEO,
    8: (1.0,),
    13: _CURVE_OF_SRGB,
    14: _CURVE_OF_VIDEO,
    15: _CURVE_OF_VIDEO,
}
_GAMMA_OF_SRGB = 1 / 2.2
_SAME_GAMMA = 0.05
"""Of one, as libpng has it: less of a difference is none."""
_MAX_EXPONENT = 32_000.0
_D50 = Vector(0.9642, 1.0, 0.8249)
_BRADFORD: Matrix = (
    Vector(0.8951, 0.2664, -0.1614),
    Vector(-0.7502, 1.7135, 0.0367),
    Vector(0.0389, -0.0685, 1.0296),
)
_TAG = struct.Struct(">4sII")
_TAGS_AT, _MAX_TAGS = 128, 200
_CLASS = slice(12, 16)
_UNREAD_BY_BROWSERS = frozenset({b"D2B0", b"D2B1", b"D2B2", b"D2B3"})


def profile_of_gamma(gamma: float, chromaticities: bytes) -> bytes | None:
    """What `gAMA` and `cHRM` of a PNG say; None if that is sRGB, or nothing.

    Args:
        gamma: how a file's values grow with light.
        chromaticities: the chunk; sRGB's count where it is none.
    """
    if not 0 < gamma < 21_474:  # libpng's bound
        return None
    curve = (min(1 / gamma, _MAX_EXPONENT),)
    if len(chromaticities) != 32:
        return None if abs(gamma / _GAMMA_OF_SRGB - 1) < _SAME_GAMMA else _build_profile(_SRGB, curve)
    try:
        return _build_profile(tuple(n / 100_000 for n in struct.unpack(">8I", chromaticities)), curve)
    except (ZeroDivisionError, struct.error):  # no triangle, or none that has numbers
        return None


def profile_of_video(numbers: bytes) -> bytes | None:
    """What `cICP` of a PNG says: empty if sRGB, None if nothing that is known here, as for high dynamic range."""
    if len(numbers) != 4 or numbers[2:] != b"\0\1":
        return None
    gamut, curve = _GAMUTS.get(numbers[0]), _CURVES.get(numbers[1])
    if gamut is None or curve is None:
        return None
    return b"" if (gamut, curve) == (_SRGB, _CURVE_OF_SRGB) else _build_profile(gamut, curve)


def as_browsers_read(profile: bytes) -> bytes:
    """Without tags that Little CMS obeys and browsers don't know, and with what would make the whole none for it and
    not for them: a second tag of a name, and a use that isn't a display's."""
    (count,) = struct.unpack_from(">I", profile, _TAGS_AT)
    if count > _MAX_TAGS:
        raise ValueError("too many tags")
    cleaned, seen = bytearray(profile), set(_UNREAD_BY_BROWSERS)
    cleaned[_CLASS] = b"mntr"
    for number in range(count):
        place = _TAGS_AT + 4 + number * _TAG.size
        name = profile[place : place + 4]
        if name in seen:
            cleaned[place : place + 4] = b"z%03d" % number
        seen.add(name)
    return bytes(cleaned)


def _build_profile(gamut: Chromaticities, curve: tuple[float, ...]) -> bytes:
    """A display's: three colours, and one curve for all."""
    columns = zip(*_to_d50(gamut), strict=True)
    kind = 0 if len(curve) == 1 else 3
    data = [b"XYZ \0\0\0\0" + _fixed(*column) for column in columns]
    data.append(struct.pack(">4s4xH2x", b"para", kind) + _fixed(*curve))
    tags = (b"rXYZ", 0), (b"gXYZ", 1), (b"bXYZ", 2), (b"rTRC", 3), (b"gTRC", 3), (b"bTRC", 3)
    body_at = _TAGS_AT + 4 + len(tags) * _TAG.size
    starts = [body_at + sum(map(len, data[:n])) for n in range(len(data))]
    table = b"".join(_TAG.pack(name, starts[n], len(data[n])) for name, n in tags)
    head = struct.pack(
        ">I4xI4s4s4s6H4s28x12s48x",
        body_at + sum(map(len, data)),
        0x0420_0000,
        b"mntr",
        b"RGB ",
        b"XYZ ",
        *(2000, 1, 1, 0, 0, 0),
        b"acsp",
        _fixed(*_D50),
    )
    return head + struct.pack(">I", len(tags)) + table + b"".join(data)


def _fixed(*values: float) -> bytes:
    """Numbers as `s15Fixed16Number`.

    Raises:
        struct.error: one is too large.
    """
    return struct.pack(f">{len(values)}i", *(round(value * 65536) for value in values))


def _to_d50(gamut: Chromaticities) -> Matrix:
    """From linear colours to the light of ICC profiles: each colour as bright as makes their sum white, then white
    moved to D50 by Bradford's way.

    Raises:
        ZeroDivisionError: there are no such colours.
    """
    white, red, green, blue = (
        Vector(x / y, 1.0, (1 - x - y) / y) for x, y in zip(gamut[::2], gamut[1::2], strict=True)
    )
    colours = _transposed((red, green, blue))
    brightness = _applied(_inverse(colours), white)
    seen, wanted = _applied(_BRADFORD, white), _applied(_BRADFORD, _D50)
    ratios = (wanted.x / seen.x, wanted.y / seen.y, wanted.z / seen.z)
    moved = _inverse(_BRADFORD)
    rows = tuple(Vector(*(n * ratio for n in row)) for row, ratio in zip(_BRADFORD, ratios, strict=True))
    columns = [
        _applied(moved, _applied((rows[0], rows[1], rows[2]), Vector(*(n * bright for n in colour))))
        for colour, bright in zip((red, green, blue), brightness, strict=True)
    ]
    return _transposed((columns[0], columns[1], columns[2]))


def _transposed(matrix: Matrix) -> Matrix:
    a, b, c = matrix
    return Vector(a.x, b.x, c.x), Vector(a.y, b.y, c.y), Vector(a.z, b.z, c.z)


def _applied(matrix: Matrix, vector: Vector) -> Vector:
    return Vector(*(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix))


def _inverse(matrix: Matrix) -> Matrix:
    a, b, c = matrix
    rows = _cross(b, c), _cross(c, a), _cross(a, b)
    size = sum(m * n for m, n in zip(a, rows[0], strict=True))
    scaled = tuple(Vector(*(n / size for n in row)) for row in rows)
    return _transposed((scaled[0], scaled[1], scaled[2]))


def _cross(a: Vector, b: Vector) -> Vector:
    return Vector(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x)
