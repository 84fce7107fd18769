"""Image files to pixels."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from node.images.decode import MAX_SIDE, MAX_SOURCE_SIDE, BadImage, Flaw, NotAnImage, decode_image
from tests.hostile_images import (
    behind_soi,
    chunk,
    clear_palette,
    deep_colour_with_transparent_red,
    deep_grey,
    exif,
    flat,
    gif,
    gif_frame,
    jpeg,
    scan_bomb,
    segment,
    with_chunk,
)

RED = (255, 0, 0)


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_the_four_kinds_are_read(kind: str) -> None:
    image = decode_image(encode(Image.new("RGB", (8, 6), RED), kind))
    assert (image.mode, image.size) == ("RGB", (8, 6))
    red, green, blue = image.getpixel((4, 3))  # type: ignore[misc]
    assert red > 250
    assert max(green, blue) < 5


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("RGBA", (255, 0, 0, 0), (255, 255, 255)),
        ("LA", (0, 0), (255, 255, 255)),
        ("1", 1, (255, 255, 255)),
        ("L", 7, (7, 7, 7)),
        ("I;16", 0x8000, (128, 128, 128)),
    ],
)
def test_alpha_is_laid_over_white_and_depth_becomes_eight_bits(mode: str, colour: Any, expected: Any) -> None:
    assert decode_image(encode(Image.new(mode, (2, 2), colour), "PNG")).getpixel((0, 0)) == expected


def test_cmyk_becomes_rgb() -> None:
    assert decode_image(encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG")).mode == "RGB"


def test_an_image_is_turned_as_its_exif_says() -> None:
    image = Image.new("RGB", (4, 2), RED)
    exif = image.getexif()
    exif[0x0112] = 6
    assert decode_image(encode(image, "JPEG", exif=exif)).size == (2, 4)


def test_the_first_frame_counts() -> None:
    frames = [Image.new("RGB", (4, 4), RED), Image.new("RGB", (4, 4), (0, 0, 255))]
    image = decode_image(encode(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert image.getpixel((0, 0)) == RED


def test_a_long_side_is_shrunk() -> None:
    assert decode_image(encode(Image.new("RGB", (MAX_SIDE * 2, 10)), "PNG")).size == (MAX_SIDE, 5)


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "ICO", "PPM"])
def test_another_kind_of_image_is_none(kind: str) -> None:
    with pytest.raises(NotAnImage):
        decode_image(encode(Image.new("RGB", (16, 16)), kind))


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"%PDF-1.7"])
def test_another_file_is_none(data: bytes) -> None:
    with pytest.raises(NotAnImage):
        decode_image(data)


def test_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(BadImage, match="more than 25000000 pixels"):
        decode_image(encode(Image.new("1", (5001, 5000)), "PNG"))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_half_a_file_is_refused(kind: str) -> None:
    noise = Image.effect_noise((64, 64), 90).convert("RGB")
    data = encode(noise, kind)
    with pytest.raises(BadImage, match="damaged"):
        decode_image(data[: len(data) // 2])


def test_a_jpeg_of_hundreds_of_scans_is_refused_before_it_is_decoded() -> None:
    data = encode(Image.effect_noise((64, 64), 90), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    assert decode_image(data).size == (64, 64)
    with pytest.raises(BadImage, match="more than 100 scans"):
        decode_image(data[:-2] + scan * 100 + data[-2:])


def test_a_few_scans_of_many_pixels_are_too_many_as_well() -> None:
    with pytest.raises(BadImage, match="too many scans for its size"):
        decode_image(scan_bomb(5_000, 5_000, 40))


def test_a_side_that_is_too_long_is_refused_whatever_the_other_is() -> None:
    with pytest.raises(BadImage, match=f"longer than {MAX_SOURCE_SIDE} pixels"):
        decode_image(flat(MAX_SOURCE_SIDE + 1, 1))
    assert decode_image(flat(MAX_SOURCE_SIDE, 1)).size == (MAX_SIDE, 1)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_an_image_is_shrunk_to_the_side_that_is_asked_for(kind: str) -> None:
    image = decode_image(encode(Image.new("RGB", (1000, 500), RED), kind), 100)
    assert image.size == (100, 50)
    red, green, blue = image.getpixel((50, 25))  # type: ignore[misc]
    assert red > 250
    assert max(green, blue) < 5


def test_what_has_no_pixel_of_a_line_left_keeps_one() -> None:
    assert decode_image(flat(4_000, 1), 100).size == (100, 1)
    assert decode_image(encode(Image.new("RGB", (3, 4_000)), "JPEG"), 100).size == (1, 100)


def test_a_large_jpeg_is_decoded_at_a_fraction_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    data, sizes = jpeg(2_000, 1_000), []
    resize = Image.Image.resize

    def noting(image: Image.Image, *arguments: Any, **options: Any) -> Image.Image:
        sizes.append(image.size)
        return resize(image, *arguments, **options)

    monkeypatch.setattr(Image.Image, "resize", noting)
    assert decode_image(data, 240).size == (240, 120)
    assert sizes[0] == (250, 125)


@pytest.mark.parametrize(
    "data",
    [
        encode(Image.new("RGB", (4, 4), RED), "PNG", transparency=RED),
        encode(Image.new("L", (4, 4), 9), "PNG", transparency=9),
        deep_grey(0x8000, transparency=0x8000),
        deep_colour_with_transparent_red(),
        clear_palette(),
    ],
)
def test_a_colour_that_is_declared_clear_shows_white(data: bytes) -> None:
    assert decode_image(data).getpixel((0, 0)) == (255, 255, 255)


def test_half_clear_is_half_white() -> None:
    image = Image.new("RGBA", (2, 2), (255, 0, 0, 128))
    assert decode_image(encode(image, "PNG")).getpixel((0, 0)) == (255, 127, 127)


def test_hidden_colours_do_not_bleed_when_an_image_is_shrunk() -> None:
    image = Image.new("RGBA", (64, 64), (0, 255, 0, 0))
    image.paste((255, 0, 0, 255), (0, 0, 32, 64))
    shrunk = decode_image(encode(image, "PNG"), 16)
    for x in range(16):
        red, green, blue = shrunk.getpixel((x, 8))  # type: ignore[misc]
        assert abs(green - blue) <= 2
        assert red > 250


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_turn_brings_the_marked_corner_where_it_belongs(orientation: int) -> None:
    image = Image.new("RGB", (32, 16), (0, 0, 255))
    image.paste(RED, (0, 0, 16, 8))
    exif = image.getexif()
    exif[0x0112] = orientation
    turned = decode_image(encode(image, "PNG", exif=exif))
    assert turned.size == ((32, 16) if orientation < 5 else (16, 32))
    corners = {1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (0, 1), 5: (0, 0), 6: (1, 0), 7: (1, 1), 8: (0, 1)}
    across, down = corners[orientation]
    assert turned.getpixel((across * (turned.width - 1), down * (turned.height - 1))) == RED


XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="3"/></rdf:RDF></x:xmpmeta>'
)
UPSIDE_DOWN = exif((0x0112, 3, 1, 3))[4:]  # without marker and length


def left_is_red(data: bytes) -> bool:
    """Of a picture that is red on the left and blue on the right; else it is turned."""
    red, _, blue = decode_image(data).getpixel((2, 2))  # type: ignore[misc]
    return bool(red > blue)


def red_and_blue() -> Image.Image:
    image = Image.new("RGB", (32, 16), (0, 0, 255))
    image.paste(RED, (0, 0, 16, 16))
    return image


@pytest.mark.parametrize(
    ("data", "is_followed"),
    [
        (encode(red_and_blue(), "JPEG", exif=UPSIDE_DOWN), True),
        (encode(red_and_blue(), "PNG", exif=UPSIDE_DOWN), True),
        (encode(red_and_blue(), "WEBP", exif=UPSIDE_DOWN), False),
        (behind_soi(segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP), encode(red_and_blue(), "JPEG")), False),
        (with_chunk(chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP), encode(red_and_blue(), "PNG")), False),
        (
            with_chunk(
                chunk(b"tEXt", b"Raw profile type exif\0\nexif\n99\n" + UPSIDE_DOWN.hex().encode()),
                encode(red_and_blue(), "PNG"),
            ),
            False,
        ),
        (encode(red_and_blue(), "WEBP", xmp=XMP), False),
        (encode(red_and_blue(), "PNG")[:-12] + chunk(b"eXIf", UPSIDE_DOWN[6:]) + chunk(b"IEND"), False),
    ],
    ids=["JPEG", "PNG", "WebP", "JPEG's XMP", "PNG's XMP", "PNG's text", "WebP's XMP", "PNG behind its pixels"],
)
def test_a_turn_is_followed_where_browsers_follow_it(data: bytes, is_followed: bool) -> None:
    assert left_is_red(data) is not is_followed


def test_a_gif_is_clear_around_its_first_frame() -> None:
    image = decode_image(gif(8, 8, gif_frame(1, 1, 3) + b";"))
    assert image.getpixel((3, 0)) == RED
    assert {image.getpixel((x, y)) for x in range(8) for y in range(8) if (x, y) != (3, 0)} == {(255, 255, 255)}


def test_every_flaw_has_words_for_the_sender() -> None:
    assert [str(BadImage(flaw)) for flaw in Flaw] == [flaw.value for flaw in Flaw]
    assert all(flaw.value.split()[1] in ("image", "side") for flaw in Flaw)
