"""What the node and the process that decodes write to each other: a file there, its pixels back.

Decides the form, and that nothing in an answer is believed: whoever wrote it may have been taken over by the file
that it decoded.
"""

from __future__ import annotations

import struct

from PIL import Image

from node.images.decode import BadImage, Flaw, NotAnImage

_ORDER = struct.Struct("<I")
"""The longest side of the answer in pixels; the file follows."""
_HEAD = struct.Struct("<BII")
"""What it is, width, height; RGB bytes follow."""
_IMAGE, _NOT_AN_IMAGE, _FIRST_FLAW = 0, 1, 2
_FLAWS = tuple(Flaw)


def write_order_head(max_side_px: int) -> bytes:
    """What stands before the file."""
    return _ORDER.pack(max_side_px)


def read_order(order: bytes) -> tuple[int, bytes]:
    """The longest side in pixels, and the file."""
    (max_side_px,) = _ORDER.unpack_from(order)
    return max_side_px, order[_ORDER.size :]


def most_answer_bytes(max_side_px: int) -> int:
    """Of an image of at most so many pixels on a side."""
    return _HEAD.size + 3 * max_side_px * max_side_px


def write_image(image: Image.Image) -> bytes:
    """An RGB image."""
    return _HEAD.pack(_IMAGE, *image.size) + image.tobytes()


def write_failure(failure: NotAnImage | BadImage) -> bytes:
    """Why there is none."""
    what = _FIRST_FLAW + _FLAWS.index(failure.flaw) if isinstance(failure, BadImage) else _NOT_AN_IMAGE
    return _HEAD.pack(what, 0, 0)


def read_image(answer: bytes, max_side_px: int) -> Image.Image:
    """The image.

    Raises:
        NotAnImage, BadImage: there is none, or the answer isn't one.
    """
    if len(answer) < _HEAD.size:
        raise BadImage(Flaw.DAMAGED)
    what, width, height = _HEAD.unpack_from(answer)
    if what == _NOT_AN_IMAGE:
        raise NotAnImage
    if what >= _FIRST_FLAW:
        raise BadImage(_FLAWS[what - _FIRST_FLAW] if what - _FIRST_FLAW < len(_FLAWS) else Flaw.DAMAGED)
    is_whole = len(answer) == _HEAD.size + 3 * width * height
    if not (1 <= width <= max_side_px and 1 <= height <= max_side_px and is_whole):
        raise BadImage(Flaw.DAMAGED)
    return Image.frombytes("RGB", (width, height), answer[_HEAD.size :])
