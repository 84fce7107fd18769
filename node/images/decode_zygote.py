"""The program that decodes images: `python -m node.images.decode_zygote`. It has Pillow, and forks for each file.

Decides what one file may cost.
"""

from __future__ import annotations

import encodings.ascii
import encodings.latin_1
import encodings.utf_8
import encodings.utf_16

from PIL import Image, ImageChops, ImageCms, ImageColor, ImageMath, ImageOps, ImagePalette, TiffImagePlugin

from node.forks.limits import Limits
from node.forks.zygote import serve
from node.images.decode import MAX_SIDE, BadImage, NotAnImage, decode_image
from node.images.pixels import NotBase64, most_answer_bytes, read_order, write_failure, write_image

LIMITS = Limits(
    cpu_s=4.0,  # the most costly file of 25 megapixels that we could make takes 1.5 s
    wall_s=30.0,
    patience_s=5.0,  # no file reaches it unless the machine is busy; earlier, a busy one would starve good files
    memory_bytes=512 << 20,  # a WebP with alpha has its pixels four times, 100 MB each
    most_answer_bytes=most_answer_bytes(MAX_SIDE),
)
_PRELOADED = (
    *(encodings.ascii, encodings.latin_1, encodings.utf_8, encodings.utf_16),
    *(ImageChops, ImageCms, ImageColor, ImageMath, ImageOps, ImagePalette, TiffImagePlugin),
)
"""What Pillow imports when a file asks for it, and a fork can't."""


def decode(order: bytes) -> bytes:
    """The answer to an order, whatever the file is."""
    try:
        max_side_px, data = read_order(order)
        return write_image(decode_image(data, max_side_px))
    except (NotBase64, NotAnImage, BadImage) as failure:
        return write_failure(failure)


def main() -> None:
    """Serve."""
    Image.preinit()
    serve(decode, LIMITS)


if __name__ == "__main__":
    main()
