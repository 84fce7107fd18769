"""What the node and the process that decodes write to each other: a file there, its pixels back.

Decides the form, and that nothing in an answer is believed: whoever wrote it may have been taken over by the file
that it decoded.
"""

from __future__ import annotations

import base64
import binascii
import struct

from PIL import Image

from node.images.decode import BadImage, Flaw, NotAnImage

_ORDER = struct.Struct("<IB")
"""The longest side of the answer in pixels, and whether the file that follows is base64."""
_HEAD = struct.Struct("<BII")
"""What it is, width, height; RGB bytes follow."""
_IMAGE, _NOT_AN_IMAGE, _NOT_BASE64, _FIRST_FLAW = 0, 1, 2, 3
_FLAWS = tuple(Flaw)


class NotBase64(Exception):
    """The text is not base64."""


def write_order_head(max_side_px: int, *, is_base64: bool = False) -> bytes:
    """What stands before the file."""
    return _ORDER.pack(max_side_px, is_base64)


def read_order(order: bytes) -> tuple[int, bytes]:
    """The longest side in pixels, and the file.

    Raises:
        NotBase64: what should be isn't, down to the last bit of padding.
    """
    max_side_px, is_base64 = _ORDER.unpack_from(order)
    file = order[_ORDER.size :]
    if not is_base64:
        return max_side_px, file
    try:
        return max_side_px, base64.b64decode(file, validate=True)
    except binascii.Error:
        raise NotBase64 from None


def most_answer_bytes(max_side_px: int) -> int:
    """Of an image of at most so many pixels on a side."""
    return _HEAD.size + 3 * max_side_px * max_side_px


def write_image(image: Image.Image) -> bytes:
    """An RGB image."""
    return _HEAD.pack(_IMAGE, *image.size) + image.tobytes()


def write_failure(failure: NotBase64 | NotAnImage | BadImage) -> bytes:
    """Why there is none."""
    if isinstance(failure, BadImage):
        what = _FIRST_FLAW + _FLAWS.index(failure.flaw)
    else:
        what = _NOT_BASE64 if isinstance(failure, NotBase64) else _NOT_AN_IMAGE
    return _HEAD.pack(what, 0, 0)


def read_image(answer: bytes, max_side_px: int) -> Image.Image:
    """The image.

    Raises:
        NotBase64, NotAnImage, BadImage: there is none, or the answer isn't one.
    """
    if len(answer) < _HEAD.size:
        raise BadImage(Flaw.DAMAGED)
    what, width, height = _HEAD.unpack_from(answer)
    if what == _NOT_AN_IMAGE:
        raise NotAnImage
    if what == _NOT_BASE64:
        raise NotBase64
    if what >= _FIRST_FLAW:
        raise BadImage(_FLAWS[what - _FIRST_FLAW] if what - _FIRST_FLAW < len(_FLAWS) else Flaw.DAMAGED)
    is_whole = len(answer) == _HEAD.size + 3 * width * height
    if not (1 <= width <= max_side_px and 1 <= height <= max_side_px and is_whole):
        raise BadImage(Flaw.DAMAGED)
    return Image.frombytes("RGB", (width, height), answer[_HEAD.size :])
