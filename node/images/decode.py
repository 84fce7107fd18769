"""An image file to the pixels that a model sees.

Decides which files are images, how large they may be, and what becomes of turns, alpha and depth. Must not know where
the bytes come from. Blocking: call it off the event loop.
"""

from __future__ import annotations

import io
import warnings

from PIL import Image, ImageOps

MAX_PIXELS = 25_000_000
MAX_SCANS = 100
"""Of a JPEG: each is decoded over the whole picture, and files with hundreds are made to be slow."""
MAX_SIDE = 2048
"""Longer sides are shrunk to this: models see fewer pixels still."""
_MAGIC = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF87a": "GIF", b"GIF89a": "GIF"}


class NotAnImage(Exception):
    """The bytes are no PNG, JPEG, WebP or GIF."""


class BadImage(Exception):
    """The file is damaged or too large; the message is words for its sender."""


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


def decode_image(data: bytes) -> Image.Image:
    """Whole, first frame, turned as EXIF says, over white, RGB, at most `MAX_SIDE` on a side.

    Raises:
        NotAnImage: another kind of file. BadImage: damaged, or more than `MAX_PIXELS`.
    """
    kind = classify_kind(data)
    if kind == "JPEG" and data.count(b"\xff\xda") > MAX_SCANS:
        raise BadImage(f"the image has more than {MAX_SCANS} scans")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=[kind]) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise BadImage(f"the image has more than {MAX_PIXELS} pixels")
                image.load()
                return _prepare(image)
    except BadImage:
        raise
    except Exception:  # Pillow raises whatever its decoders do: OSError, ValueError, SyntaxError, struct.error, ...
        raise BadImage("the image is damaged") from None


def _prepare(image: Image.Image) -> Image.Image:
    turned: Image.Image = ImageOps.exif_transpose(image)
    turned.thumbnail((MAX_SIDE, MAX_SIDE))
    if turned.mode.startswith("I;16") or turned.mode == "I":
        turned = turned.point(lambda value: value / 256).convert("L")
    if turned.has_transparency_data:
        layer = turned.convert("RGBA")
        turned = Image.new("RGB", layer.size, "white")
        turned.paste(layer, mask=layer.getchannel("A"))
    return turned if turned.mode == "RGB" else turned.convert("RGB")
