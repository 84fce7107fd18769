"""The images of a request as pixels, by the path of their block.

Decides which sources are taken, how many, how much of them is held at once, and the refusal of each that isn't taken.
Must not know the engine, nor how bytes are fetched or decoded.

What a request waits for, in this order, so that no two of them can wait for each other: room for the files that it
fetches; a place for each fetch, with that room in hand; room for all its pixels, with its files in hand; a decoder,
with that room in hand. Each room is taken once and at once, and each wait has an end. A server that is slow keeps
files waiting, but no pixels, of which there are more.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from PIL.Image import Image

from node.images.decode import MAX_SIDE, BadImage, NotAnImage
from node.images.decoder import ImageDecoder, look_at_head
from node.images.fetch import ByteMeter, EgressGuard
from node.images.lanes import run_in_order
from node.images.pixels import NotBase64
from node.images.verdict import EgressRefused
from node.settings import EgressSection
from node.shares import Hold, Shares
from node.wire.faults import UNREADABLE
from node.wire.request import ImageBlock, MessagesRequest, ToolResultBlock, UserMessage
from shared.errors import BACKEND_UNAVAILABLE, IMAGE_KIND, INVALID_REQUEST, UNSUPPORTED_PARAMETER, ApiError, Condition
from shared.settings import SettingsError

MAX_IMAGES = 20
LANES = 4
"""Images of one request that are decoded at once."""
PIXEL_BYTES = 4
"""Pillow keeps a fourth byte with each RGB pixel."""
WAIT_S = 10.0
"""For room. Where it takes longer, the caller had better come back."""
_RETRY_AFTER_S = 2


def pixel_room() -> Shares:
    """For the pixels of all requests that wait for their prompt: a file of 12 KB can be 16 MiB of them.

    640 MiB, twice what the largest of requests holds, and half of it for one payer.
    """
    largest = MAX_IMAGES * PIXEL_BYTES * MAX_SIDE * MAX_SIDE
    return Shares(2 * largest, largest)


def file_room(largest_file_bytes: int) -> Shares:
    """For fetched files that wait for the last of their request: three times what the largest request fetches, and
    two thirds of it for one payer."""
    largest = MAX_IMAGES * largest_file_bytes
    return Shares(3 * largest, 2 * largest)


@dataclass(slots=True)
class ImageIntake:
    """Takes the images of all requests of a node.

    Args:
        largest_file_bytes: that the guard fetches.
    """

    guard: EgressGuard
    decoder: ImageDecoder
    largest_file_bytes: int = 10 << 20
    wait_s: float = WAIT_S
    pixels: Shares = field(init=False)
    files: Shares = field(init=False)
    _warming: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Nothing is held."""
        self.pixels, self.files = pixel_room(), file_room(self.largest_file_bytes)

    @property
    def held_bytes(self) -> int:
        """Pixels, those that are about to be decoded included."""
        return self.pixels.held

    def warm_up(self) -> None:
        """Have the decoder ready before the first image waits for it; nobody waits for this."""
        self._warming = asyncio.create_task(self.decoder.start())
        self._warming.add_done_callback(lambda task: task.cancelled() or task.exception())

    @asynccontextmanager
    async def taken(
        self, request: MessagesRequest, *, max_side_px: int | None, meter: ByteMeter
    ) -> AsyncIterator[Mapping[str, Image]]:
        """The pixels of every image, for as long as the context lasts: then they are gone, whoever still has them.

        Args:
            max_side_px: longer sides are shrunk to it; None where the model has no vision.
            meter: pays for the bytes that are fetched.

        Raises:
            ApiError: no vision, too many images, one that is none or isn't fetched, or no room for more of them.
        """
        blocks = dict(walk_images(request))
        _refuse_blind(blocks, max_side_px)
        if len(blocks) > MAX_IMAGES:
            raise _refusal(INVALID_REQUEST, list(blocks)[MAX_IMAGES], f"at most {MAX_IMAGES} in a request")
        batch = _Batch(self, max_side_px or 0, meter)
        try:
            yield await batch.take(blocks)
        finally:
            batch.end()


@asynccontextmanager
async def open_intake(egress: EgressSection) -> AsyncIterator[ImageIntake]:
    """An intake with its guard and its decoder, for as long as the context lasts.

    Raises:
        SettingsError: the certificates can't be read.
    """
    try:
        guard = EgressGuard(egress)
    except ssl.SSLError:  # an OSError too, which speaks of OpenSSL's source
        raise SettingsError(f"egress.ca_file: {egress.ca_file}: no certificate can be read in it") from None
    except OSError as error:
        raise SettingsError(f"egress.ca_file: {egress.ca_file}: {error.strerror}") from None
    decoder = ImageDecoder()
    try:
        yield ImageIntake(guard, decoder, egress.max_image_bytes)
    finally:
        await decoder.close()


class _Batch:
    """The images of one request, and the room that they take."""

    def __init__(self, intake: ImageIntake, max_side_px: int, meter: ByteMeter) -> None:
        self._intake, self._meter = intake, meter
        self._side_px = max(1, min(max_side_px, MAX_SIDE))
        self._files_hold, self._pixels_hold = Hold(intake.files, meter.payer), Hold(intake.pixels, meter.payer)
        self._files: dict[str, bytes | str] = {}  # by where they come from; text is base64
        self._images: dict[str, Image] = {}

    def end(self) -> None:
        """No pixel is left: not of an image that a prompt has, nor of one that an exception leads to."""
        self._files.clear()
        for image in self._images.values():
            image.close()
        self._images.clear()
        self._pixels_hold.end()
        self._files_hold.end()

    async def take(self, blocks: Mapping[str, ImageBlock]) -> dict[str, Image]:
        """All of them, each URL fetched and decoded once. The first failure in their order is the one that is told,
        but for what a fetch fails of, which is told before anything is decoded."""
        places = defaultdict(list)
        urls: dict[str, str] = {}  # to where each is first named
        for path, block in blocks.items():
            if block.source.type == "url":
                where = urls.setdefault(block.source.url, f"{path}.source.url")
            else:
                where = f"{path}.source.data"
                self._files[where] = block.source.data
            places[where].append(path)
        if urls:
            self._look_at_heads()
            await self._fetch(urls)
        if places:
            await self._take(self._pixels_hold, len(places) * self._most_bytes)
            await run_in_order([functools.partial(self._decode, where) for where in places], LANES)
        return {path: self._images[where] for where, paths in places.items() for path in paths}

    @property
    def _most_bytes(self) -> int:
        """Of the pixels of one image."""
        return PIXEL_BYTES * self._side_px * self._side_px

    def _look_at_heads(self) -> None:
        """Nobody is asked for anything where what was sent is no image at first sight."""
        for where, file in self._files.items():
            with _refusing(where):
                look_at_head(file)

    async def _fetch(self, urls: Mapping[str, str]) -> None:
        largest_bytes = self._intake.largest_file_bytes

        async def keep(url: str, data: bytes) -> None:
            self._files_hold.give_back(largest_bytes - len(data))
            self._files[urls[url]] = data

        await self._take(self._files_hold, len(urls) * largest_bytes)
        try:
            await self._intake.guard.fetch_all(urls, keep, self._meter)
        except EgressRefused as refused:
            raise refused.api_error(urls[refused.url]) from None
        finally:
            await self._meter.charge_rest()

    async def _decode(self, where: str) -> None:
        file = self._files.pop(where)
        with _refusing(where):
            image = await self._intake.decoder.decode(file, self._side_px, self._meter.payer)
        self._images[where] = image
        self._pixels_hold.give_back(self._most_bytes - PIXEL_BYTES * image.width * image.height)
        if isinstance(file, bytes):
            self._files_hold.give_back(len(file))

    async def _take(self, hold: Hold, count_bytes: int) -> None:
        try:
            await hold.take(count_bytes, self._intake.wait_s)
        except TimeoutError:
            raise ApiError(
                BACKEND_UNAVAILABLE, "too many images at the moment; retry shortly", retry_after_s=_RETRY_AFTER_S
            ) from None


def _refuse_blind(blocks: Mapping[str, ImageBlock], max_side_px: int | None) -> None:
    if blocks and max_side_px is None:
        raise _refusal(UNSUPPORTED_PARAMETER, next(iter(blocks)), "this model takes none")


def walk_images(request: MessagesRequest) -> Iterator[tuple[str, ImageBlock]]:
    """Every image of a request with its path, in order."""
    for index, message in enumerate(request.messages):
        if isinstance(message, UserMessage) and not isinstance(message.content, str):
            for place, block in enumerate(message.content):
                if isinstance(block, ImageBlock):
                    yield f"messages.{index}.content.{place}", block
                elif isinstance(block, ToolResultBlock) and isinstance(block.content, list):
                    for inner, part in enumerate(block.content):
                        if isinstance(part, ImageBlock):
                            yield f"messages.{index}.content.{place}.content.{inner}", part


@contextmanager
def _refusing(where: str) -> Iterator[None]:
    """Say what is wrong with the file that stands there."""
    try:
        yield
    except NotBase64:
        raise _refusal(INVALID_REQUEST, where, "not valid base64") from None
    except NotAnImage:
        raise _refusal(IMAGE_KIND, where, "not a PNG, JPEG, WebP or GIF") from None
    except BadImage as error:
        raise _refusal(INVALID_REQUEST, where, str(error)) from None


def _refusal(condition: Condition, where: str, why: str) -> ApiError:
    return ApiError(condition, f"{where}: {UNREADABLE}: {why}", param=where)
