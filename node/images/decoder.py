"""Image files to pixels, in processes that can be killed and see nothing but their one file.

Decides how many files are decoded at once, and what a caller hears of one that is too much. What a file may cost is
`decode_zygote.py`'s.
"""

from __future__ import annotations

import base64
import binascii
import functools
import os

from PIL import Image

from node.forks.messages import Outcome
from node.forks.pool import Busy, Pool
from node.forks.process import Gone, Killed
from node.images.decode import MAX_SIDE, BadImage, Flaw, classify_kind
from node.images.decode_zygote import LIMITS
from node.images.pixels import NotBase64, read_image, write_order_head
from shared.errors import BACKEND_UNAVAILABLE, ApiError, retry_in

MOST_WAITING = 256
"""Half of them of one payer: thirty of its requests with many images each."""
_START_S = 30.0
_MARGIN_S = 5.0
"""After a file's time by the clock: a process that hasn't ended it by then has stopped."""
_HEAD_BYTES = 12
"""What it takes to tell the kinds apart, and a multiple of three, which is whole in base64."""
_RETRY_AFTER_S = 5


def most_at_once(cores: int) -> int:
    """Half of the cores, so that decoding never takes all of a machine; two on a small one, so that one slow file
    doesn't stop the others."""
    return max(2, min(8, cores // 2))


class ImageDecoder:
    """Decodes files.

    Args:
        module: the program that does it.
    """

    def __init__(self, module: str = "node.images.decode_zygote") -> None:
        self._pool = Pool(
            module,
            most_forks=most_at_once(len(os.sched_getaffinity(0))),
            most_waiting=MOST_WAITING,
            start_s=_START_S,
            answer_s=LIMITS.wall_s + _MARGIN_S,
            # One heap: a fork has one thread, and each heap more would be address space that its pixels lack.
            environment={"MALLOC_ARENA_MAX": "1"},
        )

    @property
    def pid(self) -> int | None:
        """Of the process that decodes."""
        return self._pool.pid

    async def start(self) -> None:
        """Have the process ready, which takes a fraction of a second. Else the first file waits for it.

        Raises:
            ApiError: it doesn't start.
        """
        try:
            await self._pool.start()
        except Gone:
            raise _unavailable() from None

    async def close(self) -> None:
        """End it, and all decoding."""
        await self._pool.close()

    async def decode(self, file: bytes | str, max_side_px: int, payer: str = "") -> Image.Image:
        """Whole, first frame, turned as EXIF says, over white, RGB.

        Args:
            file: its bytes, or their base64, which is read where the file is: 10 MB of it would hold up this process.
            payer: who is next where many wait is who has fewest at work.
            max_side_px: longer sides are shrunk to this; at most `MAX_SIDE` counts.

        Raises:
            NotBase64, NotAnImage: another kind of file. BadImage: damaged, or too much to decode.
            ApiError: too many files wait, or there is nothing to decode with.
        """
        look_at_head(file)
        side_px = max(1, min(max_side_px, MAX_SIDE))
        read = functools.partial(read_image, max_side_px=side_px)
        head = write_order_head(side_px, is_base64=isinstance(file, str))
        try:
            return await self._pool.ask(head, file, read=read, payer=payer)
        except Killed as killed:
            raise _refusal(killed.outcome) from None
        except (Busy, Gone):
            raise _unavailable() from None


def look_at_head(file: bytes | str) -> None:
    """Refuse what the first bytes show to be no image.

    Raises:
        NotBase64: text that isn't base64 from its beginning. NotAnImage: another kind of file.
    """
    if isinstance(file, str):
        try:
            file = base64.b64decode(file[: _HEAD_BYTES // 3 * 4], validate=True)
        except (binascii.Error, ValueError):
            raise NotBase64 from None
    classify_kind(file)


def _refusal(outcome: Outcome) -> BadImage | ApiError:
    match outcome:
        case Outcome.SLOW:
            return BadImage(Flaw.SLOW)
        case Outcome.LARGE:
            return BadImage(Flaw.LARGE)
        case Outcome.LATE | Outcome.UNABLE:  # the machine's fault, not the file's
            return _unavailable()
        case _:
            return BadImage(Flaw.DAMAGED)


def _unavailable() -> ApiError:
    return ApiError(
        BACKEND_UNAVAILABLE,
        f"images can't be decoded at the moment; {retry_in(_RETRY_AFTER_S)}",
        retry_after_s=_RETRY_AFTER_S,
    )
