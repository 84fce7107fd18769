"""Which chunks of a PNG count."""

from __future__ import annotations

import contextlib
import struct
import time
import zlib

import pytest

from node.images.decode import BadImage, decode_image
from node.images.png import MAX_CHUNKS, read_png
from tests.hostile_images import MIB, PNG, RED, WHITE, chunk, flat, flipped, header, noise, saved, with_chunk

PALETTE, OTHER_PALETTE = chunk(b"PLTE", bytes(RED)), chunk(b"PLTE", bytes((0, 255, 0)))
CLEAR, FULL = chunk(b"tRNS", b"\0"), chunk(b"tRNS", b"\xff")
PIXELS, END = chunk(b"IDAT", zlib.compress(bytes(9 * 8))), chunk(b"IEND")
HEADER = header(8, 8, 8, 3)
ANIMATED = chunk(b"acTL", struct.pack(">II", 1, 0))
FRAME = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 8, 8, 0, 0, 1, 10, 0, 0))
GAMMA = chunk(b"gAMA", struct.pack(">I", 100_000))


def first_pixel(*chunks: bytes) -> object:
    return decode_image(b"".join(chunks)).getpixel((0, 0))


def test_a_palette_and_what_is_clear_of_it_are_read() -> None:
    assert first_pixel(HEADER, PALETTE, PIXELS, END) == RED
    assert first_pixel(HEADER, PALETTE, CLEAR, PIXELS, END) == WHITE


@pytest.mark.parametrize(
    "chunks",
    [
        (HEADER, PALETTE, OTHER_PALETTE, PIXELS, END),
        (HEADER, PALETTE, FULL, CLEAR, PIXELS, END),
        (HEADER, CLEAR, PALETTE, PIXELS, END),
        (HEADER, CLEAR, PIXELS, END),
        (HEADER, PALETTE, PIXELS, CLEAR, END),
        (HEADER, PALETTE, PIXELS, OTHER_PALETTE, END),
        (HEADER, HEADER[8:], PALETTE, PIXELS, END),
        (HEADER, PALETTE, PIXELS, HEADER[8:], END),
        (PNG, PALETTE, HEADER[8:], PIXELS, END),
        (HEADER, PALETTE, PIXELS, chunk(b"teXt"), PIXELS, END),
        (HEADER, PALETTE, chunk(b"IDAT"), GAMMA, PIXELS, END),
        (HEADER, PALETTE, chunk(b"DDAT"), PIXELS, END),
        (HEADER, chunk(b"PLTE", b"12"), PIXELS, END),
        (HEADER, chunk(b"PLTE", bytes(771)), PIXELS, END),
        (HEADER, PALETTE, chunk(b"tRNS", b"\0\0"), PIXELS, END),
        (HEADER, PALETTE, chunk(b"tRNS"), PIXELS, END),
        (HEADER, PALETTE, flipped(CLEAR, 8), PIXELS, END),
        (HEADER, PALETTE, flipped(PIXELS, 12), END),
        (HEADER, flipped(PALETTE, 8), PIXELS, END),
        (HEADER, PALETTE, flipped(GAMMA, 8), PIXELS, END),
        (HEADER, PALETTE, PIXELS[:-1]),
        (HEADER, PALETTE, END),
        (HEADER, PIXELS, END),
        (HEADER[:24], b"\x09", HEADER[25:], PALETTE, PIXELS, END),
        (PNG,),
        (header(8, 8, 7, 3), PALETTE, PIXELS, END),
        (PNG, chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 3, 0, 0, 2)), PALETTE, PIXELS, END),
        (PNG, chunk(b"IHDR", struct.pack(">IIBBBBBB", 8, 8, 8, 3, 0, 0, 0, 0)), PALETTE, PIXELS, END),
        (header(8, 8, 8, 2), chunk(b"tRNS", bytes(2)), chunk(b"IDAT", zlib.compress(bytes(25 * 8))), END),
    ],
    ids=range(29),
)
def test_what_makes_the_picture_stands_once_and_in_its_place(chunks: tuple[bytes, ...]) -> None:
    with pytest.raises(BadImage, match="damaged"):
        decode_image(b"".join(chunks))


def test_what_describes_the_picture_counts_once_and_in_its_place() -> None:
    other = chunk(b"gAMA", struct.pack(">I", 2_000))
    image = saved(noise(8, 8).point(lambda value: 128), "PNG")
    first = decode_image(with_chunk(GAMMA + other, image)).getpixel((0, 0))
    assert first == (188, 188, 188)
    assert decode_image(image[:-12] + GAMMA + image[-12:]).getpixel((0, 0)) == (128, 128, 128)
    assert decode_image(with_chunk(chunk(b"PLTE", bytes(3)) + GAMMA, image)).getpixel((0, 0)) == (188, 188, 188)


@pytest.mark.parametrize(
    ("depth", "colour", "samples", "clear"),
    [
        (1, 0, b"\0\1", b"\0\1"),
        (1, 0, b"\0\1", b"\xff\1"),
        (2, 0, b"\0\2", b"\0\2"),
        (4, 0, b"\0\7", b"\0\7"),
        (4, 0, b"\0\7", b"\xff\xf7"),
        (8, 0, b"\0\x63", b"\7\x63"),
        (16, 0, b"\x12\x34", b"\x12\x34"),
        (8, 2, b"\0\1\0\2\0\3", b"\1\1\1\2\1\3"),
        (16, 2, b"\1\1\2\2\3\3", b"\1\1\2\2\3\3"),
    ],
)
def test_the_clear_colour_has_no_bits_but_the_images(depth: int, colour: int, samples: bytes, clear: bytes) -> None:
    """libpng masks it; Pillow neither masks nor widens it."""
    values = struct.unpack(f">{len(samples) // 2}H", samples)
    bits = "".join(f"{value:0{depth}b}" for value in values)
    row = int(bits * 8, 2).to_bytes(len(bits), "big")
    data = (
        header(8, 8, depth, colour) + chunk(b"tRNS", clear) + chunk(b"IDAT", zlib.compress((b"\0" + row) * 8)) + END
    )
    assert decode_image(data).getpixel((0, 0)) == WHITE
    opaque = header(8, 8, depth, colour) + chunk(b"IDAT", zlib.compress((b"\0" + row) * 8)) + END
    assert depth == 1 or decode_image(opaque).getpixel((0, 0)) != WHITE


def test_a_clear_colour_beside_alpha_says_nothing() -> None:
    data = (
        header(8, 8, 8, 6) + chunk(b"tRNS", bytes(6)) + chunk(b"IDAT", zlib.compress((b"\0" + b"\0\0\0\xff" * 8) * 8))
    )
    assert decode_image(data + END).getpixel((0, 0)) == (0, 0, 0)


def test_an_animation_shows_its_first_frame_and_is_refused_if_that_is_elsewhere() -> None:
    image = flat(8, 8)
    assert decode_image(with_chunk(ANIMATED + FRAME, image)).size == (8, 8)
    for hidden in (with_chunk(ANIMATED, image), with_chunk(ANIMATED, image)[:-12] + FRAME + END):
        with pytest.raises(BadImage, match="hides its first picture"):
            decode_image(hidden)
    assert decode_image(image[:-12] + ANIMATED + END).size == (8, 8)


def test_texts_are_not_read() -> None:
    data = with_chunk(chunk(b"zTXt", b"k\0\0" + b"not deflated") + flipped(chunk(b"tEXt", b"k\0v"), 9), flat(8, 8))
    assert decode_image(data).size == (8, 8)
    assert b"tEXt" not in read_png(data).file


def test_a_file_without_an_end_is_whole_if_its_pixels_are() -> None:
    assert decode_image(flat(8, 8)[:-12]).size == (8, 8)


def test_there_is_a_bound_to_chunks() -> None:
    data = with_chunk(chunk(b"teXt") * (MAX_CHUNKS - 3), flat(8, 8))
    assert decode_image(data).size == (8, 8)
    with pytest.raises(BadImage, match="damaged"):
        decode_image(with_chunk(chunk(b"teXt"), data))


@pytest.mark.parametrize("unit", [b"\0", b"\xff", chunk(b"IDAT"), chunk(b"teXt"), chunk(b"IDAT", bytes(999))])
def test_ten_megabytes_take_a_fraction_of_a_second(unit: bytes) -> None:
    data = with_chunk(unit * (10 * MIB // len(unit)), flat(8, 8))
    begun_s = time.thread_time()
    with contextlib.suppress(ValueError):
        read_png(data)
    assert time.thread_time() - begun_s < 1
