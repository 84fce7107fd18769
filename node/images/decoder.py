"""Image files to pixels, in processes that can be killed and see nothing but their one file.

Decides how many files are decoded at once, and what a caller hears of one that is too much. What a file may cost is
`decode_zygote.py`'s.
"""

from __future__ import annotations

import functools
import os

from PIL import Image

from node.forks.messages import Outcome
from node.forks.pool import Busy, Pool
from node.forks.process import Gone, Killed
from node.images.decode import MAX_SIDE, BadImage, Flaw, classify_kind
from node.images.pixels import read_image, write_order_head
from shared.errors import BACKEND_UNAVAILABLE, ApiError

MOST_WAITING = 256
"""Half of them of one payer: thirty of its requests with many images each."""
_START_S = 30.0
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

    async def decode(self, data: bytes, max_side_px: int, payer: str = "") -> Image.Image:
        """Whole, first frame, turned as EXIF says, over white, RGB.

        Args:
            payer: who is next where many wait is who has fewest at work.
            max_side_px: longer sides are shrunk to this; at most `MAX_SIDE` counts.

        Raises:
            NotAnImage: another kind of file. BadImage: damaged, or too much to decode.
            ApiError: too many files wait, or there is nothing to decode with.
        """
        classify_kind(data)
        side_px = max(1, min(max_side_px, MAX_SIDE))
        read = functools.partial(read_image, max_side_px=side_px)
        try:
            return await self._pool.ask(write_order_head(side_px), data, read=read, payer=payer)
        except Killed as killed:
            raise _refusal(killed.outcome) from None
        except (Busy, Gone):
            raise _unavailable() from None


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
        f"images can't be decoded at the moment; retry in {_RETRY_AFTER_S} seconds",
        retry_after_s=_RETRY_AFTER_S,
    )
