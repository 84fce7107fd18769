"""An image file to the pixels that a model sees.

Decides which files are images, how large they may be, and what becomes of turns, colours, alpha and depth: what
browsers make of them. Must not know where the bytes come from. Blocking, and what a hostile file costs is bounded in
part only: `decoder.py` has it run in a process that can be killed.
"""

from __future__ import annotations

import enum
import io
import warnings
from contextlib import suppress
from dataclasses import dataclass

from PIL import GifImagePlugin, Image, ImageFile, JpegImagePlugin, MpoImagePlugin, PngImagePlugin, WebPImagePlugin

from node.images.colours import UnreadableProfile, convert_to_srgb
from node.images.exif import read_orientation
from node.images.jpeg import read_jpeg
from node.images.png import read_png
from node.images.profile import MAX_PROFILE_BYTES

MAX_PIXELS = 25_000_000
MAX_SOURCE_SIDE = 16_000
"""Of the file: no picture is longer, and decoders keep whole rows."""
MAX_SCANS = 100
"""Of a JPEG: each is decoded over the whole picture, and files with hundreds are made to be slow."""
MAX_SCANNED_PIXELS = 1_000_000_000
"""Scans times pixels, some seconds of work."""
MAX_SIDE = 2048
"""Longer sides are shrunk to this: models see fewer pixels still."""
_MAGIC = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF87a": "GIF", b"GIF89a": "GIF"}
_PLUGINS = (GifImagePlugin, JpegImagePlugin, MpoImagePlugin, PngImagePlugin, WebPImagePlugin)
"""Imported so that Pillow doesn't look for them later; MPO is JPEG with more behind it."""
_WHITE = (255, 255, 255)
_GREY = frozenset({"1", "L", "LA", "I", "I;16"})
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Flaw(enum.StrEnum):
    """What is wrong with a file, in words for its sender."""

    DAMAGED = "the image is damaged"
    PIXELS = f"the image has more than {MAX_PIXELS} pixels"
    SIDE = f"a side of the image is longer than {MAX_SOURCE_SIDE} pixels"
    SCANS = f"the image has more than {MAX_SCANS} scans"
    SCANNED_PIXELS = "the image has too many scans for its size"
    SLOW = "the image takes too long to decode"
    LARGE = "the image takes too much memory to decode"
    PROFILE = f"the image has a colour profile of more than {MAX_PROFILE_BYTES >> 20} MiB"
    HIDDEN = "the image is an animation that hides its first picture"


class NotAnImage(Exception):
    """The bytes are no PNG, JPEG, WebP or GIF."""


class BadImage(Exception):
    """The file is damaged or too large; the message is words for its sender."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw.value)
        self.flaw = flaw


@dataclass(frozen=True, slots=True)
class _Source:
    """A file and what it says of itself; what Pillow finds of that elsewhere, browsers don't follow."""

    file: bytes
    profiles: tuple[bytes, ...] = ()
    exif: bytes = b""
    scans: int = 1


def classify_kind(data: bytes) -> str:
    """Which of the four kinds the first bytes say.

    Raises:
        NotAnImage: none of them.
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    for magic, kind in _MAGIC.items():
        if data.startswith(magic):
            return kind
    raise NotAnImage


def decode_image(data: bytes, max_side_px: int = MAX_SIDE) -> Image.Image:
    """Whole, first frame, turned as EXIF says, in sRGB, over white, at most `max_side_px` on a side.

    Raises:
        NotAnImage: another kind of file. BadImage: damaged, or too large.
        MemoryError: it would take more than there is.
    """
    kind = classify_kind(data)
    try:
        source = _read_source(data, kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(source.file), formats=[kind]) as image:
                _check_size(image, source.scans)
                if image.width > max_side_px or image.height > max_side_px:
                    # A JPEG is decoded at half, a quarter or an eighth at a fraction of the cost.
                    image.draft(None, _shrunk(image.size, max_side_px))
                return _show(image, source, max_side_px)
    except (BadImage, MemoryError):
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise BadImage(Flaw.PIXELS) from None
    except Exception:  # Pillow raises whatever its decoders do: OSError, ValueError, SyntaxError, struct.error, ...
        raise BadImage(Flaw.DAMAGED) from None


def _read_source(data: bytes, kind: str) -> _Source:
    match kind:
        case "JPEG":
            jpeg = read_jpeg(data)
            if jpeg is None:
                raise BadImage(Flaw.DAMAGED)
            if jpeg.scans > MAX_SCANS:
                raise BadImage(Flaw.SCANS)
            return _Source(data, (jpeg.profile,) if jpeg.profile else (), jpeg.exif, jpeg.scans)
        case "PNG":
            png = read_png(data)
            if png.hides_picture:
                raise BadImage(Flaw.HIDDEN)
            return _Source(png.file, png.profiles, png.exif)
        case _:  # no browser turns a WebP
            return _Source(data)


def _show(image: ImageFile.ImageFile, source: _Source, max_side_px: int) -> Image.Image:
    """What a person would see of an open image. Colours are converted when they are few."""
    frame = image.tile[0].extents if image.format == "GIF" else None
    image.load()
    profiles = source.profiles
    if image.format == "WEBP" and (embedded := image.info.get("icc_profile")):
        profiles = (embedded,)
    if any(len(profile) > MAX_PROFILE_BYTES for profile in profiles):
        raise BadImage(Flaw.PROFILE)
    plain = _plain(image)
    if frame is not None:
        plain = _clear_outside(plain, frame)
    shrunk = _shrink(plain, max_side_px)
    for profile in profiles:
        with suppress(UnreadableProfile):
            shrunk = convert_to_srgb(shrunk, profile, is_grey=image.mode in _GREY)
            break
    turn = _TURNS.get(read_orientation(source.exif))
    shown = _over_white(shrunk)
    return shown if turn is None else shown.transpose(turn)


def _clear_outside(image: Image.Image, frame: tuple[int, int, int, int]) -> Image.Image:
    """A GIF around its first frame: clear for browsers, its first colour for Pillow."""
    if frame == (0, 0, *image.size):
        return image
    cleared = Image.new("RGBA", image.size)
    cleared.paste(image.crop(frame), frame[:2])
    return cleared


def _check_size(image: Image.Image, scans: int) -> None:
    pixels = image.width * image.height
    if pixels > MAX_PIXELS:
        raise BadImage(Flaw.PIXELS)
    if max(image.size) > MAX_SOURCE_SIDE:
        raise BadImage(Flaw.SIDE)
    if scans * pixels > MAX_SCANNED_PIXELS:
        raise BadImage(Flaw.SCANNED_PIXELS)


def _shrunk(size: tuple[int, int], max_side_px: int) -> tuple[int, int]:
    width, height = (max(1, round(side * max_side_px / max(size))) for side in size)
    return width, height


def _plain(image: Image.Image) -> Image.Image:
    """In a mode that can be shrunk: eight bits, no palette, alpha as a channel if there is any."""
    if image.mode.startswith("I"):
        image = _eight_bits(image)
    elif image.mode == "RGB":
        image = _eight_bits_of_transparent_colour(image)
    if image.has_transparency_data:
        return image if image.mode == "RGBA" else image.convert("RGBA")
    return image if image.mode in ("L", "RGB", "CMYK") else image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of sixteen bits with eight; a simple conversion would make everything white."""
    grey = image.point(lambda value: value / 256).convert("L")
    transparent = image.info.get("transparency")
    grey.info.pop("transparency", None)
    if isinstance(transparent, int):
        grey.info["transparency"] = transparent >> 8
    return grey


def _eight_bits_of_transparent_colour(image: Image.Image) -> Image.Image:
    """Pillow has read sixteen bits as eight, but not those of the colour that is transparent."""
    transparent = image.info.get("transparency")
    if isinstance(transparent, tuple) and max(transparent) > 255:
        image.info["transparency"] = tuple(value >> 8 for value in transparent)
    return image


def _shrink(image: Image.Image, max_side_px: int) -> Image.Image:
    if max(image.size) > max_side_px:
        return image.resize(_shrunk(image.size, max_side_px), Image.Resampling.BICUBIC, reducing_gap=2.0)
    return image


def _over_white(image: Image.Image) -> Image.Image:
    """RGB, with white where it was clear."""
    if image.mode == "RGBA":
        white = Image.new("RGB", image.size, _WHITE)
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image if image.mode == "RGB" else image.convert("RGB")
