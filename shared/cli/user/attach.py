"""What a question is made of besides its words: images, and text from a pipe.

Decides what a file is and how large it may be; whether a model takes it is the server's to say.
"""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from shared.cli.user.document import Document
from shared.cli.user.failure import USAGE, Failure

MOST_BYTES = 32 * 1024 * 1024
"""What an edge takes as a whole body by default."""
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def read_image(named: str) -> Document:
    """An image block of a file, or of a URL that the server fetches.

    Raises:
        Failure: the file can't be read, or is no image that the API knows.
    """
    if named.lower().startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": named}}
    try:
        with Path(named).open("rb") as file:
            raw = _read_bounded(file, named)
    except OSError as error:
        raise Failure(f"{named}: {error.strerror or error}", USAGE) from None
    media_type = media_type_of(raw)
    if media_type is None:
        raise Failure(f"{named} is not a PNG, JPEG, WebP or GIF", USAGE)
    data = base64.b64encode(raw).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def media_type_of(raw: bytes) -> str | None:
    """By its first bytes; names of files lie."""
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if raw.startswith(magic)), None)


def is_fed() -> bool:
    """Whether a pipe or a file is on stdin: something that ends, and not merely something that is no terminal."""
    if sys.stdin is None:  # it was closed before the start
        return False
    with contextlib.suppress(OSError, ValueError):  # io.UnsupportedOperation is both
        mode = os.fstat(sys.stdin.fileno()).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
    return False


def read_stdin() -> str:
    """All of it.

    Raises:
        Failure: it is too long, or no text.
    """
    if sys.stdin is None:
        return ""
    try:
        return _read_bounded(sys.stdin.buffer, "stdin").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Failure("stdin is not UTF-8 text", USAGE) from None


def _read_bounded(file: BinaryIO, name: str) -> bytes:
    raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise Failure(f"{name} has more than {MOST_BYTES} bytes", USAGE)
    return raw
