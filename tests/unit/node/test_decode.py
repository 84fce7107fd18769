"""Image files to pixels."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from node.images.decode import MAX_SIDE, BadImage, NotAnImage, decode_image

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
