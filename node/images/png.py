"""A PNG to the chunks that count, in a file of nothing else.

Decides which chunks those are, and how many and in which order they may stand. Readers differ on files that break the
rules: of two palettes, libpng takes the first and Pillow the last, and Pillow also reads what stands behind the
pixels. So whatever makes the picture stands once and in its place, or the file is refused; of what only describes it,
the first before the pixels counts, as for browsers. Texts are not looked at. Must not know what becomes of pixels.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from node.images.profile import MAX_PROFILE_BYTES, profile_of_gamma, profile_of_video

MAX_CHUNKS = 20_000
"""In 10 MiB, that is pieces of 512 bytes; libpng writes 8192."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEAD, _CHECKSUM = struct.Struct(">I4s"), struct.Struct(">I")
_HEADER = struct.Struct(">IIBBBBB")
_PALETTE = 3
_SAMPLES_OF_CLEAR_COLOUR = {0: 1, 2: 3}
_BEFORE_PIXELS = frozenset({b"cICP", b"iCCP", b"sRGB", b"gAMA", b"cHRM", b"eXIf", b"acTL", b"fcTL"})


@dataclass(frozen=True, slots=True)
class Png:
    """What counts of a file.

    Attributes:
        file: a PNG of the picture alone, without a word on its colours.
        profiles: ICC profiles of them, of which the first that can be read counts; none if they are sRGB.
        exif: as `read_orientation` takes it.
        hides_picture: it is an animation, and this picture none of its frames: viewers that know animations, which
            is all browsers, never show it.
    """

    file: bytes
    profiles: tuple[bytes, ...]
    exif: bytes
    hides_picture: bool


def read_png(data: bytes) -> Png:
    """The parts of a file.

    Raises:
        ValueError, struct.error: it breaks a rule on which its picture depends.
    """
    parts: dict[bytes, bytes] = {}
    pixels: list[memoryview] = []
    previous = b""
    for kind, body in _chunks(data):
        if (kind == b"IHDR") != (previous == b""):
            raise ValueError("the header is not once and first")
        if kind == b"IDAT":
            if pixels and previous != b"IDAT":
                raise ValueError("pixels in two places")
            pixels.append(body)
        elif kind in (b"IHDR", b"PLTE", b"tRNS"):
            if kind in parts or pixels or (kind == b"PLTE" and b"tRNS" in parts):
                raise ValueError("a chunk doubled or out of its place")
            parts[kind] = bytes(body)
        elif kind in _BEFORE_PIXELS and not pixels:
            parts.setdefault(kind, bytes(body))
        elif kind[:1].isupper() and kind != b"IEND":
            raise ValueError("a chunk that nobody knows and everybody must")
        previous = kind
    *_, depth, colour, compression, filtering, interlace = _HEADER.unpack(parts[b"IHDR"])
    if compression or filtering or interlace > 1:
        raise ValueError("another way to pack")
    palette = _palette(parts) if colour == _PALETTE else b""
    return Png(
        file=b"".join(
            (
                _SIGNATURE,
                _chunk(b"IHDR", parts[b"IHDR"]),
                _chunk(b"PLTE", palette) if palette else b"",
                _clear(parts.get(b"tRNS"), depth, colour, len(palette) // 3),
                _chunk(b"IDAT", b"".join(pixels)),
                _chunk(b"IEND", b""),
            )
        ),
        profiles=tuple(_profiles(parts)),
        exif=parts.get(b"eXIf", b""),
        hides_picture=b"acTL" in parts and b"fcTL" not in parts,
    )


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """All up to the end; the checksums of those that nobody needs aren't looked at."""
    view, place = memoryview(data), len(_SIGNATURE)
    for _ in range(MAX_CHUNKS):
        if len(data) - place < 12:
            return
        length, kind = _HEAD.unpack_from(data, place)
        end = place + 8 + length
        if end + 4 > len(data):
            raise ValueError("cut off")
        is_read = kind[:1].isupper() or kind == b"tRNS" or kind in _BEFORE_PIXELS
        if is_read and zlib.crc32(view[place + 4 : end]) != _CHECKSUM.unpack_from(data, end)[0]:
            raise ValueError("a wrong checksum")
        yield kind, view[place + 8 : end]
        if kind == b"IEND":
            return
        place = end + 4
    raise ValueError("too many chunks")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return b"".join((_HEAD.pack(len(body), kind), body, _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(kind)))))


def _palette(parts: dict[bytes, bytes]) -> bytes:
    palette = parts.get(b"PLTE", b"")
    if len(palette) % 3 or not 3 <= len(palette) <= 768:
        raise ValueError("no palette")
    return palette


def _clear(body: bytes | None, depth: int, colour: int, entries: int) -> bytes:
    """The chunk for what is clear, in Pillow's reading: as libpng's, samples have no bits but the image's, and they
    are as wide as the image becomes."""
    if body is None:
        return b""
    if colour == _PALETTE:
        if not 1 <= len(body) <= entries:
            raise ValueError("more is clear than there is")
        return _chunk(b"tRNS", body)
    samples = _SAMPLES_OF_CLEAR_COLOUR.get(colour)
    if samples is None:  # it has a channel for that
        return b""
    most = (1 << depth) - 1
    scale = 255 // most if 1 < depth < 8 else 1
    values = (scale * (value & most) for value in struct.unpack(f">{samples}H", body))
    return _chunk(b"tRNS", struct.pack(f">{samples}H", *values))


def _profiles(parts: dict[bytes, bytes]) -> Iterator[bytes]:
    """In the order of PNG's third edition, 4.3: who says it best is believed."""
    if (video := profile_of_video(parts.get(b"cICP", b""))) is not None:
        if video:
            yield video
        return
    if embedded := _inflated(parts.get(b"iCCP", b"")):
        yield embedded
    if b"sRGB" not in parts and len(gamma := parts.get(b"gAMA", b"")) == 4:
        made = profile_of_gamma(int.from_bytes(gamma, "big") / 100_000, parts.get(b"cHRM", b""))
        if made is not None:
            yield made


def _inflated(body: bytes) -> bytes:
    """A profile behind its name; one byte more than may be at most, and nothing if it is damaged."""
    _, _, packed = body.partition(b"\0")
    unpacker = zlib.decompressobj()
    try:
        profile = unpacker.decompress(packed[1:], MAX_PROFILE_BYTES + 1)
    except zlib.error:
        return b""
    return profile if unpacker.eof or len(profile) > MAX_PROFILE_BYTES else b""
