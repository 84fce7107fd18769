"""Image files that are made to hurt whoever decodes them, and odd ones that must be read: `HOSTILE`.

Each is built when it is asked for. What comes of it is as the node promises: `ok`, `bad` (a 400 with the reason), or
`not an image`.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal

from PIL import Image

Expected = Literal["ok", "bad", "not an image"]
Colour = tuple[int, int, int]
MIB = 1 << 20
PNG = b"\x89PNG\r\n\x1a\n"
RED, WHITE = (255, 0, 0), (255, 255, 255)


@dataclass(frozen=True, slots=True)
class Case:
    """A file.

    Attributes:
        size: of what comes of it, where that matters. colour: of its first pixel.
    """

    name: str
    build: Callable[[], bytes] = field(repr=False)
    expected: Expected
    size: tuple[int, int] | None = None
    colour: Colour | None = None


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The file of an image."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width: int = 64, height: int = 64) -> Image.Image:
    """A picture that doesn't compress."""
    return Image.effect_noise((width, height), 90).convert("RGB")


def frames(count: int) -> dict[str, Any]:
    """Options that save an animation; its first frame is red."""
    return {"save_all": True, "append_images": [Image.new("RGB", (8, 8), (0, 0, n % 256)) for n in range(1, count)]}


RED_SQUARE = Image.new("RGB", (8, 8), RED)


# PNG.


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    """One of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    """The start of a PNG; colour 0 is grey, 2 RGB, 3 a palette, 6 RGBA."""
    return PNG + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


@cache
def zeros(size: int) -> bytes:
    """That many zeros, deflated."""
    packer, left, parts = zlib.compressobj(6), size, []
    while left > 0:
        parts.append(packer.compress(bytes(min(left, MIB))))
        left -= MIB
    return b"".join(parts) + packer.flush()


def flat(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    """A black PNG."""
    bits = depth * {0: 1, 2: 3, 3: 1, 6: 4}[colour]
    palette = chunk(b"PLTE", bytes(3)) if colour == 3 else b""
    data = chunk(b"IDAT", zeros(height * (1 + (width * bits + 7) // 8)))
    return header(width, height, depth, colour) + palette + data + chunk(b"IEND")


@cache
def filtered_png() -> bytes:
    """The most work that 25 megapixels can be: 16 bits, alpha, and each byte guessed from three others."""
    row = b"\x04" + (bytes(range(251)) * 200)[:50_000]
    return header(6_250, 4_000, 16, 6) + chunk(b"IDAT", zlib.compress(row * 4_000, 1)) + chunk(b"IEND")


def with_chunk(extra: bytes, image: bytes | None = None) -> bytes:
    """A PNG with something behind its header."""
    whole = image or saved(RED_SQUARE, "PNG")
    return whole[:33] + extra + whole[33:]


def many_text_chunks() -> bytes:
    return with_chunk(b"".join(chunk(b"zTXt", b"k%d\0\0" % n + zeros(MIB)) for n in range(100)))


def flipped(data: bytes, place: int) -> bytes:
    """One byte changed."""
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


def deep_grey(value: int, **options: Any) -> bytes:
    return saved(Image.new("I;16", (8, 8), value), "PNG", **options)


def deep_colour_with_transparent_red() -> bytes:
    rows = (b"\0" + struct.pack(">3H", 0xFFFF, 0, 0) * 8) * 8
    transparent = chunk(b"tRNS", struct.pack(">3H", 0xFFFF, 0, 0))
    return header(8, 8, 16, 2) + transparent + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND")


def clear_palette() -> bytes:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    return saved(image, "PNG", transparency=bytes([255, 0]))


def large_frame_control() -> bytes:
    control = struct.pack(">IIIIIHHBB", 0, 1 << 30, 8, 0, 0, 1, 10, 0, 0)
    return with_chunk(chunk(b"acTL", struct.pack(">II", 2, 0)) + chunk(b"fcTL", control))


# GIF.


def gif(width: int, height: int, body: bytes) -> bytes:
    """A GIF with a palette of two colours."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\xff\0\0\xff\xff\xff" + body


def gif_frame(width: int, height: int, left: int = 0) -> bytes:
    """One red frame of a GIF: two of the smallest codes, then nothing more is said of it."""
    return b"," + struct.pack("<HHHHB", left, 0, width, height, 0) + b"\x02\x02\x44\x01\0"


def gif_comments(size: int) -> bytes:
    return (b"!\xfe" + (b"\xff" + b"c" * 255) * 40 + b"\0") * (size // 10_243)


# JPEG.


def segment(marker: int, data: bytes) -> bytes:
    """One of a JPEG."""
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


@cache
def jpeg(width: int = 64, height: int = 64, **options: Any) -> bytes:
    """One of noise."""
    return saved(noise(min(width, 512), min(height, 512)).resize((width, height)), "JPEG", **options)


def resized(data: bytes, width: int, height: int) -> bytes:
    """A JPEG that says another size."""
    place = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
    return data[: place + 5] + struct.pack(">HH", height, width) + data[place + 9 :]


def scan_bomb(width: int, height: int, repeats: int) -> bytes:
    """A progressive JPEG with its last scan again and again, which costs its reader the whole picture each time."""
    data = saved(Image.new("RGB", (width, height), RED), "JPEG", progressive=True, quality=5)
    scan = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + scan * repeats + data[-2:]


def behind_soi(extra: bytes, image: bytes | None = None) -> bytes:
    """A JPEG with something behind its first marker."""
    whole = image or jpeg()
    return whole[:2] + extra + whole[2:]


def exif(*entries: tuple[int, int, int, int], following: int = 0) -> bytes:
    """The EXIF segment of a JPEG: tag, type, count and value of each entry, and where the next directory is."""
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    data = struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + body + struct.pack("<I", following)
    return segment(0xE1, b"Exif\0\0" + data)


def turned_image() -> bytes:
    return behind_soi(exif((0x0112, 3, 1, 6)), saved(Image.new("RGB", (8, 4), RED), "JPEG"))


def icc_jpeg() -> bytes:
    part = b"ICC_PROFILE\0" + b"\x01\xff" + bytes(65_000)
    return behind_soi(b"".join(segment(0xE2, part[:12] + bytes([n, 255]) + part[14:]) for n in range(1, 150)))


def blocks_of_photoshop() -> bytes:
    """Each block of twelve bytes is an entry for Pillow to read."""
    return behind_soi(segment(0xED, b"Photoshop 3.0\0" + b"8BIM\x04\0\0\0\0\0\0\0" * 5_000) * 150)


# Colour profiles.


def icc(space: bytes, light: bytes, **tags: bytes) -> bytes:
    """A profile of a display, by the numbers of ICC.1; the same bytes of two tags are there once."""
    data = b"".join(dict.fromkeys(tags.values()))
    start = 132 + 12 * len(tags)
    table = b"".join(
        struct.pack(">4sII", name.encode(), start + data.index(value), len(value)) for name, value in tags.items()
    )
    head = struct.pack(
        ">I4xI4s4s4s12x4s28x3i48x", start + len(data), 0x02400000, b"mntr", space, light, b"acsp", *D50
    )
    return head + struct.pack(">I", len(tags)) + table + data


D50 = (63_190, 65_536, 54_061)


def xyz(x: float, y: float, z: float) -> bytes:
    return struct.pack(">8s3i", b"XYZ ", *(round(n * 65536) for n in (x, y, z)))


def curve(gamma: float) -> bytes:
    return struct.pack(">8sIHxx", b"curv", 1, round(gamma * 256))


SRGB_COLOURS = {
    "rXYZ": xyz(0.436, 0.2225, 0.0139),
    "gXYZ": xyz(0.3851, 0.7169, 0.0971),
    "bXYZ": xyz(0.1431, 0.0606, 0.7141),
}


def curves(gamma: float) -> dict[str, bytes]:
    return dict.fromkeys(("rTRC", "gTRC", "bTRC"), curve(gamma))


def swapped_profile() -> bytes:
    """Red is green, and green is red."""
    red, green = SRGB_COLOURS["rXYZ"], SRGB_COLOURS["gXYZ"]
    return icc(b"RGB ", b"XYZ ", **{**SRGB_COLOURS, "rXYZ": green, "gXYZ": red}, **curves(2.2))


def grey_profile(gamma: float) -> bytes:
    return icc(b"GRAY", b"XYZ ", wtpt=xyz(0.9642, 1, 0.8249), kTRC=curve(gamma))


def table(channels: int, grid: int, colour: Callable[[int], bytes]) -> bytes:
    """A table of eight bits: Lab of each of its points, in which the first channel changes last."""
    same = bytes(range(256))
    matrix = struct.pack(">9i", *(65536, 0, 0, 0, 65536, 0, 0, 0, 65536))
    points = b"".join(colour(n) for n in range(grid**channels))
    return b"mft1\0\0\0\0" + bytes((channels, 3, grid, 0)) + matrix + same * channels + points + same * 3


LAB_WHITE, LAB_GREY, LAB_BLACK = b"\xff\x80\x80", b"\x80\x80\x80", b"\0\x80\x80"


def press_profile() -> bytes:
    """Cyan is white, all else is grey."""
    return icc(b"CMYK", b"Lab ", A2B0=table(4, 2, lambda n: LAB_WHITE if n >= 8 else LAB_GREY))


@cache
def large_profile() -> bytes:
    """As large as may be, with a table that is all needed."""
    return icc(b"RGB ", b"Lab ", A2B0=table(3, 110, lambda n: LAB_GREY))


@cache
def large_press_profile() -> bytes:
    return icc(b"CMYK", b"Lab ", A2B0=table(4, 33, lambda n: bytes((n % 256, n % 211, n % 199))))


def png_with_profile(profile: bytes, image: bytes | None = None) -> bytes:
    return with_chunk(chunk(b"iCCP", b"k\0\0" + zlib.compress(profile, 1)), image)


def jpeg_with_profile(profile: bytes, image: bytes | None = None) -> bytes:
    """Marked as jpeglib does."""
    pieces = [profile[at : at + 65_519] for at in range(0, len(profile), 65_519)]
    marked = (b"ICC_PROFILE\0" + bytes((n, len(pieces))) + piece for n, piece in enumerate(pieces, 1))
    return behind_soi(b"".join(segment(0xE2, piece) for piece in marked), image)


def with_table_of_tags(count: int, *tags: tuple[bytes, int, int]) -> bytes:
    """The profile that swaps, with another table of tags."""
    profile, body = swapped_profile(), b"".join(struct.pack(">4sII", *tag) for tag in tags)
    return profile[:128] + struct.pack(">I", count) + body + profile[132 + len(body) :]


BAD_PROFILES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: bytes(128),
    "cut": lambda: swapped_profile()[:230],
    "cut in its head": lambda: swapped_profile()[:100],
    "of letters": lambda: b"x" * 3_000,
    "of 2^32 tags": lambda: with_table_of_tags(0xFFFFFFFF),
    "of 100 tags that aren't there": lambda: with_table_of_tags(100),
    "whose tags are its tags": lambda: with_table_of_tags(
        6, *((name.encode(), 128, 600) for name in (*SRGB_COLOURS, *curves(1)))
    ),
    "whose tags are itself": lambda: with_table_of_tags(
        6, *((name.encode(), 0, 0xFFFFFFFF) for name in (*SRGB_COLOURS, *curves(1)))
    ),
    "of CMYK": press_profile,
    "of Lab": lambda: swapped_profile().replace(b"RGB ", b"Lab "),
    "of a curve of 2^32 points": lambda: swapped_profile().replace(
        b"curv\0\0\0\0\0\0\0\1", b"curv\0\0\0\0\xff\xff\xff\xff"
    ),
    "of a table of 255^3 points": lambda: icc(
        b"RGB ", b"Lab ", A2B0=table(3, 2, lambda n: LAB_GREY).replace(b"\3\3\2", b"\3\3\xff")
    ),
    "of 16 channels": lambda: icc(
        b"FCLR", b"Lab ", A2B0=table(3, 2, lambda n: LAB_GREY).replace(b"\3\3\2", b"\x0f\3\xff")
    ),
}
"""Each is passed over."""


# WebP.


def webp(**options: Any) -> bytes:
    return saved(noise(), "WEBP", **options)


def webp_canvas(width: int, height: int) -> bytes:
    """The header of an extended WebP, with a frame of another size."""
    inner = webp()[12:]
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<II", 10, 0) + sizes + inner
    return b"RIFF" + struct.pack("<I", len(body)) + body


def lying_webp() -> bytes:
    data = webp()
    return data[:4] + struct.pack("<I", 1 << 31) + data[8:]


@cache
def large_webp(width: int, height: int) -> bytes:
    return saved(Image.new("RGB", (width, height), RED), "WEBP", quality=1, method=0)


# Other kinds.


def other(kind: str) -> Callable[[], bytes]:
    return lambda: saved(RED_SQUARE, kind)


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
KEEP_OUT = b"PK\x03\x04" + b"\0" * 26 + b"<script>alert(1)</script>"


def _png() -> Iterator[Case]:
    yield Case("png header of 100000 x 100000", lambda: header(100_000, 100_000) + chunk(b"IEND"), "bad")
    yield Case("png header of 2^31 x 1", lambda: header(1 << 31, 1) + chunk(b"IEND"), "bad")
    yield Case("png without width", lambda: header(0, 8) + chunk(b"IDAT", zeros(8)) + chunk(b"IEND"), "bad")
    yield Case("png flat 19000 x 19000", lambda: flat(19_000, 19_000, 1, 0), "bad")
    yield Case("png 40000000 x 1", lambda: flat(40_000_000, 1), "bad")
    yield Case("png 20000 x 1", lambda: flat(20_000, 1), "bad")
    yield Case("png 16000 x 1", lambda: flat(16_000, 1), "ok", (2048, 1))
    yield Case("png 8000 x 5000", lambda: flat(8_000, 5_000), "bad")
    yield Case("png 6250 x 4000", lambda: flat(6_250, 4_000), "ok", (2048, 1311))
    yield Case("png 6250 x 4000 RGBA of 16 bits", lambda: flat(6_250, 4_000, 16, 6), "ok", (2048, 1311), WHITE)
    yield Case("png 6250 x 4000 grey of 16 bits", lambda: flat(6_250, 4_000, 16, 0), "ok", (2048, 1311))
    yield Case("png 6250 x 4000 RGBA of 16 bits, filtered", filtered_png, "ok", (2048, 1311))
    yield Case("png 6250 x 4000 palette", lambda: flat(6_250, 4_000, 8, 3), "ok", (2048, 1311))
    yield Case(
        "png zTXt of 200 MB", lambda: with_chunk(chunk(b"zTXt", b"k\0\0" + zeros(200 * MIB))), "ok", (8, 8), RED
    )
    yield Case("png 100 zTXt of 1 MB", many_text_chunks, "ok", (8, 8), RED)
    yield Case(
        "png iTXt of 200 MB", lambda: with_chunk(chunk(b"iTXt", b"k\0\1\0\0\0" + zeros(200 * MIB))), "ok", (8, 8), RED
    )
    yield Case("png iCCP of 200 MB", lambda: with_chunk(chunk(b"iCCP", b"k\0\0" + zeros(200 * MIB))), "bad")
    yield Case(
        "png IDAT of 300 MB for 4 x 4",
        lambda: header(4, 4) + chunk(b"IDAT", zeros(300 * MIB)) + chunk(b"IEND"),
        "ok",
        (4, 4),
    )
    yield Case(
        "png 800000 empty IDATs",
        lambda: with_chunk(chunk(b"IDAT") * 800_000, flat(8, 8)),
        "bad",
    )
    yield Case("png of a bad checksum", lambda: flipped(saved(RED_SQUARE, "PNG"), 31), "bad")
    yield Case("png of a bad byte", lambda: flipped(saved(noise(), "PNG"), 2_000), "bad")
    yield Case("png half", lambda: saved(noise(), "PNG")[:5_000], "bad")
    yield Case("png without IDAT", lambda: header(8, 8) + chunk(b"IEND"), "bad")
    yield Case("png signature and junk", lambda: PNG + b"junk" * 100, "bad")
    yield Case("png with a zip behind", lambda: saved(RED_SQUARE, "PNG") + KEEP_OUT, "ok", (8, 8), RED)
    yield Case("png with html behind", lambda: saved(RED_SQUARE, "PNG") + b"<html>" * 9, "ok", (8, 8), RED)
    yield Case("png grey of 16 bits", lambda: deep_grey(0x8000), "ok", (8, 8), (128, 128, 128))
    yield Case("png grey of 16 bits, clear", lambda: deep_grey(0x8000, transparency=0x8000), "ok", (8, 8), WHITE)
    yield Case("png RGB of 16 bits, clear", deep_colour_with_transparent_red, "ok", (8, 8), WHITE)
    yield Case("png of 1 bit", lambda: saved(Image.new("1", (8, 8), 1), "PNG"), "ok", (8, 8), WHITE)
    yield Case("png palette, clear", clear_palette, "ok", (8, 8), WHITE)
    yield Case("png LA, clear", lambda: saved(Image.new("LA", (8, 8), (0, 0)), "PNG"), "ok", (8, 8), WHITE)
    yield Case("png RGBA, clear", lambda: saved(Image.new("RGBA", (8, 8), (0, 0, 0, 0)), "PNG"), "ok", (8, 8), WHITE)
    yield Case("png RGB, clear", lambda: saved(RED_SQUARE, "PNG", transparency=RED), "ok", (8, 8), WHITE)
    yield Case("apng of 60 frames", lambda: saved(RED_SQUARE, "PNG", **frames(60)), "ok", (8, 8), RED)
    yield Case(
        "apng that says 2^31 frames",
        lambda: with_chunk(chunk(b"acTL", struct.pack(">II", 1 << 31, 0)) + chunk(b"fcTL", bytes(26))),
        "ok",
        (8, 8),
        RED,
    )
    yield Case("apng frame 2^30 wide", large_frame_control, "ok", (8, 8), RED)
    yield Case("apng that hides its picture", lambda: with_chunk(chunk(b"acTL", struct.pack(">II", 1, 0))), "bad")
    palette = chunk(b"PLTE", bytes(3))
    yield Case("png of two palettes", lambda: with_chunk(palette, flat(8, 8, 8, 3)), "bad")
    yield Case("png of two headers", lambda: with_chunk(flat(8, 8)[8:33]), "bad")
    yield Case("png of 900000 empty chunks", lambda: with_chunk(chunk(b"teXt") * 900_000), "bad")
    yield Case("png whose pixels are in two places", lambda: with_chunk(chunk(b"IDAT") + chunk(b"teXt")), "bad")


def _gif() -> Iterator[Case]:
    yield Case("gif of 1200 frames", lambda: saved(RED_SQUARE, "GIF", **frames(1_200)), "ok", (8, 8), RED)
    yield Case("gif of 500000 frames", lambda: gif(1, 1, gif_frame(1, 1) * 500_000 + b";"), "ok", (1, 1))
    yield Case("gif screen 65535 x 65535", lambda: gif(65_535, 65_535, gif_frame(65_535, 65_535) + b";"), "bad")
    yield Case("gif frame outside", lambda: gif(8, 8, gif_frame(60_000, 60_000, 5_000) + b";"), "bad")
    yield Case("gif without frames", lambda: gif(8, 8, b";"), "bad")
    yield Case("gif truncated", lambda: saved(noise(), "GIF")[:2_000], "bad")
    yield Case("gif of 9 MB of comments", lambda: gif(8, 8, gif_comments(9 * MIB)), "bad")
    yield Case("gif frame of 5000 x 5000 in three bytes", lambda: gif(5_000, 5_000, gif_frame(5_000, 5_000)), "bad")


def _jpeg() -> Iterator[Case]:
    yield Case("jpeg truncated", lambda: jpeg()[:1_500], "bad")
    yield Case("jpeg header of 65500 x 65500", lambda: resized(jpeg(), 65_500, 65_500), "bad")
    yield Case("jpeg magic and html", lambda: b"\xff\xd8\xff<html><body>" * 20, "bad")
    yield Case("jpeg 150 APP1 of 64 KB, no more", lambda: b"\xff\xd8" + segment(0xE1, bytes(65_000)) * 150, "bad")
    yield Case("jpeg 150 APP1 of 64 KB", lambda: behind_soi(segment(0xE1, bytes(65_000)) * 150), "ok", (64, 64))
    yield Case(
        "jpeg 150 EXIF of 64 KB",
        lambda: behind_soi(segment(0xE1, b"Exif\0\0" + bytes(65_000)) * 150),
        "ok",
        (64, 64),
    )
    yield Case("jpeg profile of 10 MB", icc_jpeg, "ok", (64, 64))
    yield Case("jpeg 750000 blocks of Photoshop", blocks_of_photoshop, "ok", (64, 64))
    yield Case("jpeg 10 MiB of 0xFF", lambda: b"\xff\xd8" + b"\xff" * 10 * MIB, "bad")
    yield Case("jpeg 10 MiB of 0xFF before its segments", lambda: behind_soi(b"\xff" * 10 * MIB), "bad")
    yield Case(
        "jpeg 10 MiB of zeros before its segments", lambda: behind_soi(segment(0xE9, b"") + bytes(10 * MIB)), "bad"
    )
    yield Case("jpeg 2600000 empty segments", lambda: behind_soi(segment(0xE9, b"") * 2_600_000), "bad")
    yield Case("jpeg 5000000 restarts", lambda: behind_soi(b"\xff\xd0" * 5_000_000), "bad")
    yield Case("jpeg 10 MB of 0xFF00 in its scan", lambda: jpeg()[:-2] + b"\xff\0" * 5_000_000, "ok", (64, 64))
    yield Case("jpeg of 90 scans, 6250 x 4000", lambda: scan_bomb(6_250, 4_000, 90), "bad")
    yield Case("jpeg of 39 scans, 6250 x 4000", lambda: scan_bomb(6_250, 4_000, 29), "ok", (2048, 1311))
    yield Case("jpeg of 2000 scans", lambda: scan_bomb(64, 64, 2_000), "bad")
    yield Case("jpeg of 90 scans, small", lambda: scan_bomb(64, 64, 80), "ok", (64, 64))
    yield Case("jpeg 5000 x 5000 on 2 KB", lambda: resized(jpeg(), 5_000, 5_000), "ok", (2048, 2048))
    yield Case("jpeg CMYK", lambda: saved(noise().convert("CMYK"), "JPEG"), "ok", (64, 64))
    yield Case("jpeg grey", lambda: saved(noise().convert("L"), "JPEG"), "ok", (64, 64))
    yield Case("jpeg progressive", lambda: jpeg(progressive=True), "ok", (64, 64))
    yield Case("jpeg turned by EXIF", turned_image, "ok", (4, 8))
    yield Case("jpeg bad EXIF", lambda: behind_soi(segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff")), "ok", (64, 64))
    yield Case("jpeg EXIF of letters", lambda: behind_soi(segment(0xE1, b"Exif\0\0" + b"x" * 99)), "ok", (64, 64))
    yield Case(
        "jpeg EXIF that loops",
        lambda: behind_soi(exif((0x8769, 4, 1, 8), (0x0112, 3, 1, 1), following=8)),
        "ok",
        (64, 64),
    )
    yield Case(
        "jpeg EXIF of 2^32 values", lambda: behind_soi(exif((0x0112, 3, 0xFFFFFFFF, 0xFFFFFFF0))), "ok", (64, 64)
    )
    yield Case("mpo", lambda: saved(RED_SQUARE, "MPO", **frames(2)), "ok", (8, 8))


def _webp() -> Iterator[Case]:
    yield Case("webp animated", lambda: saved(RED_SQUARE, "WEBP", **frames(20)), "ok", (8, 8))
    yield Case("webp lossless", lambda: saved(RED_SQUARE, "WEBP", lossless=True), "ok", (8, 8), RED)
    yield Case("webp truncated", lambda: webp()[:1_000], "bad")
    yield Case("webp with a wrong length", lying_webp, "bad")
    yield Case("webp 16383 wide", lambda: large_webp(16_383, 8), "bad")
    yield Case("webp 2^24 x 2^24", lambda: webp_canvas(1 << 24, 1 << 24), "bad")
    yield Case("webp 16383 x 16383 by its header", lambda: webp_canvas(16_383, 16_383), "bad")
    yield Case("webp 5000 x 5000", lambda: large_webp(5_000, 5_000), "ok", (2048, 2048))


def _profiles() -> Iterator[Case]:
    yield Case("png profile that swaps", lambda: png_with_profile(swapped_profile()), "ok", (8, 8), (0, 255, 0))
    for name, build in BAD_PROFILES.items():
        yield Case(f"png profile {name}", partial(with_profile, png_with_profile, build), "ok", (8, 8), RED)
        yield Case(f"jpeg profile {name}", partial(with_profile, jpeg_with_profile, build), "ok", (64, 64))
    yield Case("png profile of 10 MB", lambda: png_with_profile(swapped_profile() + bytes(10 * MIB)), "bad")
    yield Case("png profile of 9 MB of noise", lambda: png_with_profile(os.urandom(9 * MIB)), "bad")
    yield Case("png profile of half its bytes", half_a_profile, "ok", (8, 8), RED)
    yield Case("jpeg whole profile of 9 MB", lambda: jpeg_with_profile(swapped_profile() + bytes(9 * MIB)), "bad")
    yield Case("png table of 110^3 points", lambda: png_with_profile(large_profile()), "ok", (8, 8))
    yield Case(
        "jpeg table of 33^4 points", lambda: jpeg_with_profile(large_press_profile(), press_jpeg()), "ok", (64, 64)
    )
    yield Case(
        "jpeg 6250 x 4000 with a profile",
        lambda: jpeg_with_profile(swapped_profile(), flat_jpeg("RGB")),
        "ok",
        (2048, 1311),
    )
    yield Case(
        "jpeg 5000 x 5000 with the largest profile",
        lambda: jpeg_with_profile(large_profile(), jpeg(5_000, 5_000)),
        "ok",
        (2048, 2048),
    )
    yield Case(
        "jpeg CMYK 6250 x 4000 with a large profile",
        lambda: jpeg_with_profile(large_press_profile(), flat_jpeg("CMYK")),
        "ok",
        (2048, 1311),
    )
    yield Case(
        "png 6250 x 4000 RGBA of 16 bits, filtered, with a profile",
        lambda: png_with_profile(large_profile(), filtered_png()),
        "ok",
        (2048, 1311),
    )
    yield Case("webp 5000 x 5000 with alpha and a profile", webp_with_all, "ok", (2048, 2048))


def with_profile(write: Callable[[bytes], bytes], build: Callable[[], bytes]) -> bytes:
    return write(build())


def half_a_profile() -> bytes:
    return with_chunk(chunk(b"iCCP", b"k\0\0" + zlib.compress(swapped_profile())[:60]))


def press_jpeg() -> bytes:
    return saved(noise().convert("CMYK"), "JPEG")


@cache
def flat_jpeg(mode: str) -> bytes:
    return saved(Image.new(mode, (6_250, 4_000), 0), "JPEG")


@cache
def webp_with_all() -> bytes:
    image = Image.new("RGBA", (5_000, 5_000), (255, 0, 0, 99))
    return saved(image, "WEBP", quality=1, method=0, icc_profile=large_profile())


def _others() -> Iterator[Case]:
    for kind in ("BMP", "TIFF", "ICO", "EPS", "PDF", "AVIF", "PPM"):
        yield Case(kind.lower(), other(kind), "not an image")
    yield Case("svg", lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image")
    yield Case("heic", lambda: HEIC, "not an image")
    yield Case("zip", lambda: KEEP_OUT, "not an image")
    yield Case("empty", lambda: b"", "not an image")


HOSTILE: list[Case] = [*_png(), *_gif(), *_jpeg(), *_webp(), *_profiles(), *_others()]
