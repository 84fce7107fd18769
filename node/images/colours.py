"""Pixels and their ICC profile to sRGB, which is what models were shown.

Decides which profiles count: those that fit the pixels and can be read. Others are passed over, as browsers do. Must
not know kinds of files. Needs no file and no further module, so it runs where none can be opened.
"""

from __future__ import annotations

import io
import struct

from PIL import Image, ImageCms

from node.images.profile import as_browsers_read


def _make_srgb() -> ImageCms.ImageCmsProfile:
    """As of version 2 of ICC: between two of 4, Little CMS would also stretch what is dark, which no browser does."""
    made = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    made[_VERSION_AT] = 2
    return ImageCms.ImageCmsProfile(io.BytesIO(made))


_MODES = {b"RGB ": "RGB", b"GRAY": "L", b"CMYK": "CMYK"}
_VERSION_AT = 8
_SRGB = _make_srgb()
"""Made on import; the first profile of a process also asks it for its time zone, which is a file."""


class UnreadableProfile(Exception):
    """Nothing can be learned from it."""


def convert_to_srgb(image: Image.Image, profile: bytes, *, is_grey: bool) -> Image.Image:
    """The image in RGB or RGBA, or as it is if the profile is of other pixels.

    Args:
        image: L, RGB, RGBA or CMYK.
        is_grey: its source is, whatever its mode is now.

    Raises:
        UnreadableProfile: it is none of the three kinds, or damaged.
    """
    mode = _MODES.get(profile[16:20])
    if mode is None:
        raise UnreadableProfile
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(as_browsers_read(profile)))
        # Perceptual is the table `A2B0`, which browsers take too, whatever the profile wants.
        transform = ImageCms.ImageCmsTransform(source, _SRGB, mode, "RGB", ImageCms.Intent.PERCEPTUAL)
    except (OSError, ValueError, struct.error):
        raise UnreadableProfile from None
    if (mode == "CMYK") != (image.mode == "CMYK") or (mode == "L" and not is_grey):
        return image
    managed = transform.apply(image if image.mode == mode else image.convert(mode))
    if image.mode == "RGBA":
        managed.putalpha(image.getchannel("A"))
    return managed
