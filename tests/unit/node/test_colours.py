"""The colours that a person sees are those that the model is shown."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import pytest
from PIL import Image, ImageCms

from node.images.decode import BadImage, decode_image
from node.images.profile import MAX_PROFILE_BYTES, as_browsers_read, profile_of_gamma, profile_of_video
from tests.hostile_images import (
    BAD_PROFILES,
    LAB_BLACK,
    LAB_GREY,
    RED,
    SRGB_COLOURS,
    WHITE,
    Colour,
    chunk,
    curves,
    grey_profile,
    icc,
    jpeg_with_profile,
    png_with_profile,
    press_profile,
    saved,
    swapped_profile,
    table,
    with_chunk,
    with_table_of_tags,
)

GREEN = (0, 255, 0)
DISPLAY_P3 = (31_270, 32_900, 68_000, 32_000, 26_500, 69_000, 15_000, 6_000)
SRGB = (31_270, 32_900, 64_000, 33_000, 30_000, 60_000, 15_000, 6_000)


def flat(colour: Colour | int, mode: str = "RGB") -> Image.Image:
    return Image.new(mode, (16, 16), colour)


def png(colour: Colour | int, *extra: bytes, mode: str = "RGB") -> bytes:
    return with_chunk(b"".join(extra), saved(flat(colour, mode), "PNG"))


def gamma(value: int) -> bytes:
    return chunk(b"gAMA", struct.pack(">I", value))


def gamut(numbers: tuple[int, ...]) -> bytes:
    return chunk(b"cHRM", struct.pack(">8I", *numbers))


def embedded(profile: bytes) -> bytes:
    return chunk(b"iCCP", b"name\0\0" + zlib.compress(profile))


def shown(data: bytes) -> Colour:
    """The colour in the middle."""
    image = decode_image(data)
    red, green, blue = image.getpixel((image.width // 2, image.height // 2))  # type: ignore[misc]
    return red, green, blue


def is_near(colour: Colour, expected: Colour, most: int = 1) -> bool:
    return all(abs(a - b) <= most for a, b in zip(colour, expected, strict=True))


@pytest.mark.parametrize(
    "write",
    [
        lambda image, profile: saved(image, "PNG", icc_profile=profile),
        lambda image, profile: saved(image.quantize(4), "PNG", icc_profile=profile),
        lambda image, profile: saved(image, "JPEG", icc_profile=profile, quality=95),
        lambda image, profile: saved(image, "WEBP", icc_profile=profile, lossless=True),
    ],
    ids=["PNG", "PNG with a palette", "JPEG", "WebP"],
)
def test_an_embedded_profile_is_applied(write: Callable[[Image.Image, bytes], bytes]) -> None:
    assert is_near(shown(write(flat(RED), swapped_profile())), GREEN, 2)
    assert is_near(shown(write(flat((100, 150, 200)), swapped_profile())), (150, 100, 200), 6)


def test_the_profile_of_srgb_changes_nothing() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for colour in (RED, WHITE, (0, 0, 0), (10, 20, 30), (120, 130, 140)):
        assert is_near(shown(saved(flat(colour), "PNG", icc_profile=profile)), colour)


@pytest.mark.parametrize("mode", ["L", "LA", "1"])
def test_grey_has_a_profile_of_grey(mode: str) -> None:
    """At gamma 1, 128 of 255 is half of the light, which sRGB writes as 188."""
    image = flat(128, "L").convert(mode)
    expected = {"L": 188, "LA": 188, "1": image.convert("L").getpixel((8, 8))}[mode]
    assert is_near(shown(saved(image, "PNG", icc_profile=grey_profile(1.0))), (expected,) * 3)  # type: ignore[arg-type]


def test_grey_of_sixteen_bits_has_one_too() -> None:
    data = with_chunk(embedded(grey_profile(1.0)), saved(Image.new("I;16", (16, 16), 0x8000), "PNG"))
    assert is_near(shown(data), (188, 188, 188))


def test_grey_may_have_a_profile_of_colours() -> None:
    profile = icc(b"RGB ", b"XYZ ", **SRGB_COLOURS, **curves(1.0))
    assert is_near(shown(jpeg_with_profile(profile, saved(flat(128, "L"), "JPEG"))), (188, 188, 188))
    assert is_near(shown(with_chunk(embedded(profile), saved(flat(128, "L"), "PNG"))), (188, 188, 188))


@pytest.mark.parametrize(
    ("image", "profile"), [(flat((128, 128, 128)), grey_profile(1.0)), (flat((128, 128, 128)), press_profile())]
)
def test_a_profile_of_other_pixels_is_passed_over_in_a_png(image: Image.Image, profile: bytes) -> None:
    assert shown(with_chunk(embedded(profile), saved(image, "PNG"))) == (128, 128, 128)


@pytest.mark.parametrize(("ink", "expected"), [((255, 0, 0, 0), WHITE), ((0, 255, 255, 0), (119, 119, 119))])
def test_the_ink_of_a_jpeg_is_seen_through_its_profile(ink: tuple[int, ...], expected: Colour) -> None:
    """Inks are inverted in such files, as Adobe does it."""
    image = Image.new("CMYK", (16, 16), ink)
    assert is_near(shown(saved(image, "JPEG", quality=95, icc_profile=press_profile())), expected, 2)


def test_ink_without_a_profile_takes_its_light_away() -> None:
    assert is_near(shown(saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)), RED, 2)


@pytest.mark.parametrize("use", [b"link", b"nmcl", b"prtr", b"abst", b"what"])
def test_what_a_profile_is_meant_for_does_not_matter(use: bytes) -> None:
    assert is_near(shown(png_with_profile(swapped_profile().replace(b"mntr", use))), GREEN)


def test_what_is_clear_stays_clear_under_a_profile() -> None:
    image = Image.new("RGBA", (16, 16), (255, 0, 0, 128))
    assert is_near(shown(saved(image, "PNG", icc_profile=swapped_profile())), (127, 255, 127))
    assert shown(saved(Image.new("RGBA", (16, 16), (255, 0, 0, 0)), "PNG", icc_profile=swapped_profile())) == WHITE


@pytest.mark.parametrize("build", BAD_PROFILES.values(), ids=BAD_PROFILES)
def test_a_bad_profile_is_passed_over(build: Callable[[], bytes]) -> None:
    assert shown(png_with_profile(build())) == RED
    assert is_near(shown(jpeg_with_profile(build(), saved(flat(RED), "JPEG", quality=95))), RED, 2)


def test_a_profile_may_have_no_more_than_four_mib() -> None:
    full = swapped_profile() + bytes(MAX_PROFILE_BYTES - len(swapped_profile()))
    assert is_near(shown(png_with_profile(full)), GREEN)
    for write in (png_with_profile, jpeg_with_profile):
        with pytest.raises(BadImage, match="colour profile of more than 4 MiB"):
            decode_image(write(full + b"\0"))
    with pytest.raises(BadImage, match="colour profile of more than 4 MiB"):
        decode_image(saved(flat(RED), "WEBP", icc_profile=full + b"\0"))


def test_the_table_that_browsers_read_counts_and_no_other() -> None:
    black, grey = table(3, 2, lambda n: LAB_BLACK), table(3, 2, lambda n: LAB_GREY)
    assert is_near(shown(png_with_profile(icc(b"RGB ", b"Lab ", A2B0=grey, A2B1=black))), (119, 119, 119))
    assert is_near(shown(png_with_profile(icc(b"RGB ", b"Lab ", A2B0=grey, D2B0=black))), (119, 119, 119))
    modern = icc(b"RGB ", b"Lab ", A2B0=grey).replace(b"\x02\x40\0\0mntr", b"\x04\x40\0\0mntr")
    assert is_near(shown(png_with_profile(modern)), (119, 119, 119))


def test_of_two_tags_of_a_name_the_first_counts() -> None:
    profile = swapped_profile()
    entry = profile[132:144]
    doubled = icc(b"RGB ", b"XYZ ", **dict.fromkeys("abcdefg", b"1234"))
    assert as_browsers_read(with_table_of_tags(1, struct.unpack(">4sII", entry)))[132:144] == entry
    cleaned = as_browsers_read(doubled[:132] + entry * 2 + doubled[156:])
    assert cleaned[132:144] == entry
    assert cleaned[144:148] == b"z001"


@pytest.mark.parametrize(
    ("value", "before", "after"),
    [
        (100_000, 128, 188),
        (100_000, 55, 128),
        (2_000, 120, 0),
        (55_556, 128, 146),
        (45_455, 128, 128),
        (44_000, 128, 128),
        (0, 128, 128),
        (0xFFFFFFFF, 128, 128),
        (1, 254, 0),
        (1, 255, 255),
    ],
)
def test_the_gamma_of_a_png_is_applied(value: int, before: int, after: int) -> None:
    expected = (after, after, after)
    assert is_near(shown(png((before, before, before), gamma(value))), expected)
    assert is_near(shown(png(before, gamma(value), mode="L")), expected)


def test_the_primaries_of_a_png_count_with_a_gamma_alone() -> None:
    swapped = (*SRGB[:2], *SRGB[4:6], *SRGB[2:4], *SRGB[6:])
    assert is_near(shown(png(RED, gamma(45_455), gamut(swapped))), GREEN)
    assert shown(png(RED, gamut(swapped))) == RED
    assert is_near(shown(png((10, 20, 30), gamma(45_455), gamut(SRGB))), (3, 12, 24))


@pytest.mark.parametrize("numbers", [(0,) * 8, (31_270, 32_900) * 4, (0xFFFFFFFF,) * 8, (1, 1, 1, 0, 1, 0, 1, 0)])
def test_primaries_that_are_none_are_passed_over(numbers: tuple[int, ...]) -> None:
    assert is_near(shown(png((55, 128, 255), gamma(100_000), gamut(numbers))), (55, 128, 255))


def test_the_best_word_on_colours_counts() -> None:
    linear, srgb, swaps = gamma(100_000), chunk(b"sRGB", b"\0"), embedded(swapped_profile())
    video = chunk(b"cICP", bytes((1, 13, 0, 1)))
    colour = (128, 0, 0)
    assert is_near(shown(png(colour, linear)), (188, 0, 0))
    assert shown(png(colour, linear, srgb)) == colour
    assert is_near(shown(png(RED, linear, swaps, srgb)), GREEN)
    assert shown(png(RED, swaps, video)) == RED
    for nothing in (chunk(b"iCCP", b"name\0\0damaged"), embedded(bytes(200)), embedded(swapped_profile()[:230])):
        assert is_near(shown(png(colour, nothing, linear)), (188, 0, 0))
        assert shown(png(colour, nothing, linear, srgb)) == colour
    assert shown(png(colour, embedded(grey_profile(1.0)), linear)) == colour


@pytest.mark.parametrize(
    ("numbers", "before", "after"),
    [
        ((12, 13), (234, 51, 35), RED),
        ((12, 13), (120, 120, 120), (120, 120, 120)),
        ((1, 8), (128, 55, 0), (188, 128, 0)),
        ((1, 1), (128, 55, 20), (121, 44, 7)),
        ((9, 13), (255, 255, 255), WHITE),
        ((1, 13), (9, 99, 199), (9, 99, 199)),
        ((9, 16), (9, 99, 199), (9, 99, 199)),
        ((2, 2), (9, 99, 199), (9, 99, 199)),
    ],
)
def test_the_colours_of_video_in_a_png_are_applied(numbers: tuple[int, int], before: Colour, after: Colour) -> None:
    assert is_near(shown(png(before, chunk(b"cICP", bytes((*numbers, 0, 1))))), after, 2)


def test_a_profile_that_is_made_here_is_that_of_little_cms() -> None:
    made = profile_of_gamma(1.0, b"")
    assert made is not None
    theirs = ImageCms.createProfile("sRGB")
    ours = ImageCms.ImageCmsProfile(io.BytesIO(made)).profile
    for name in ("red_colorant", "green_colorant", "blue_colorant"):
        for a, b in zip(getattr(ours, name)[0], getattr(theirs, name)[0], strict=True):
            assert abs(a - b) < 0.0001


def test_video_with_other_matrices_or_narrow_range_says_nothing() -> None:
    assert profile_of_video(b"\1\15\0\1") == b""
    for numbers in (b"", b"\1\15\1\1", b"\1\15\0\0", b"\1\15\0\1\0", b"\x63\15\0\1", b"\1\x63\0\1"):
        assert profile_of_video(numbers) is None


def test_display_p3_by_its_numbers_is_wider_than_srgb() -> None:
    assert is_near(shown(png((234, 51, 35), gamma(45_455), gamut(DISPLAY_P3))), RED, 6)
