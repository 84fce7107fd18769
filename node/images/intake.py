"""The images of a request as pixels, by the path of their block.

Decides which sources are taken, how many, how much of them is held at once, and the refusal of each that isn't taken.
Must not know the engine, nor how bytes are fetched or decoded.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from PIL.Image import Image

from node.images.decode import BadImage, NotAnImage
from node.images.decoder import ImageDecoder
from node.images.fetch import ByteMeter, EgressGuard
from node.images.verdict import EgressRefused
from node.settings import EgressSection
from node.wire.faults import UNREADABLE
from node.wire.request import ImageBlock, MessagesRequest, ToolResultBlock, UserMessage
from shared.errors import BACKEND_UNAVAILABLE, IMAGE_KIND, INVALID_REQUEST, UNSUPPORTED_PARAMETER, ApiError, Condition
from shared.settings import SettingsError

MAX_IMAGES = 20
MAX_HELD_BYTES = 512 << 20
"""Pixels of all requests that wait for their prompt: a file of 12 KB can be 12 MiB of them."""
LANES = 4
"""Images of one request that are decoded at once, so that its twentieth doesn't stand before another's first."""
_RETRY_AFTER_S = 2


@dataclass(slots=True)
class ImageIntake:
    """Takes the images of all requests of a node."""

    guard: EgressGuard
    decoder: ImageDecoder
    max_held_bytes: int = MAX_HELD_BYTES
    held_bytes: int = field(default=0, init=False)
    _warming: asyncio.Task[None] | None = field(default=None, init=False)

    def warm_up(self) -> None:
        """Have the decoder ready before the first image waits for it; nobody waits for this."""
        self._warming = asyncio.create_task(self.decoder.start())
        self._warming.add_done_callback(lambda task: task.cancelled() or task.exception())

    @asynccontextmanager
    async def taken(
        self, request: MessagesRequest, *, max_side_px: int | None, meter: ByteMeter
    ) -> AsyncIterator[Mapping[str, Image]]:
        """The pixels of every image, for as long as the context lasts.

        Args:
            max_side_px: longer sides are shrunk to it; None where the model has no vision.
            meter: pays for the bytes that are fetched.

        Raises:
            ApiError: no vision, too many images, one that is none or isn't fetched, or no room for more pixels.
        """
        blocks = dict(_walk(request))
        _refuse_blind(blocks, max_side_px)
        if len(blocks) > MAX_IMAGES:
            raise _refusal(INVALID_REQUEST, list(blocks)[MAX_IMAGES], f"at most {MAX_IMAGES} in a request")
        async with _Batch(self, max_side_px or 0, meter.payer) as batch:
            yield {**await batch.take_sent(blocks), **await batch.take_remote(blocks, meter)}


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
        yield ImageIntake(guard, decoder)
    finally:
        await decoder.close()


class _Batch:
    """The images of one request, and the room that they take."""

    def __init__(self, intake: ImageIntake, max_side_px: int, payer: str) -> None:
        self._intake, self._max_side_px, self._payer = intake, max_side_px, payer
        self._held_bytes = 0

    async def __aenter__(self) -> _Batch:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._intake.held_bytes -= self._held_bytes

    async def take_sent(self, blocks: Mapping[str, ImageBlock]) -> dict[str, Image]:
        """Those whose bytes are in the request. The first failure in their order is the one that is told."""
        lanes = asyncio.Semaphore(LANES)

        async def take(path: str, text: str) -> Image:
            async with lanes:
                return await self._decode(await asyncio.to_thread(_decode_base64, text, path), path)

        tasks = {
            path: asyncio.create_task(take(f"{path}.source.data", block.source.data))
            for path, block in blocks.items()
            if block.source.type == "base64"
        }
        try:
            return {path: await task for path, task in tasks.items()}
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def take_remote(self, blocks: Mapping[str, ImageBlock], meter: ByteMeter) -> dict[str, Image]:
        """Those that are fetched: each URL once, and decoded once."""
        paths = defaultdict(list)
        for path, block in blocks.items():
            if block.source.type == "url":
                paths[block.source.url].append(path)

        async def use(url: str, data: bytes) -> Image:
            return await self._decode(data, f"{paths[url][0]}.source.url")

        try:
            images = await self._intake.guard.fetch_all(paths, use, meter)
        except EgressRefused as refused:
            raise refused.api_error(f"{paths[refused.url][0]}.source.url") from None
        return {path: images[url] for url in paths for path in paths[url]}

    async def _decode(self, data: bytes, where: str) -> Image:
        try:
            image = await self._intake.decoder.decode(data, self._max_side_px, self._payer)
        except NotAnImage:
            raise _refusal(IMAGE_KIND, where, "not a PNG, JPEG, WebP or GIF") from None
        except BadImage as error:
            raise _refusal(INVALID_REQUEST, where, str(error)) from None
        self._hold(image.width * image.height * len(image.getbands()))
        return image

    def _hold(self, count_bytes: int) -> None:
        if self._intake.held_bytes + count_bytes > self._intake.max_held_bytes:
            raise ApiError(
                BACKEND_UNAVAILABLE, "too many images at the moment; retry shortly", retry_after_s=_RETRY_AFTER_S
            )
        self._intake.held_bytes += count_bytes
        self._held_bytes += count_bytes


def _refuse_blind(blocks: Mapping[str, ImageBlock], max_side_px: int | None) -> None:
    if blocks and max_side_px is None:
        raise _refusal(UNSUPPORTED_PARAMETER, next(iter(blocks)), "this model takes none")


def _walk(request: MessagesRequest) -> Iterator[tuple[str, ImageBlock]]:
    for index, message in enumerate(request.messages):
        if isinstance(message, UserMessage) and not isinstance(message.content, str):
            for place, block in enumerate(message.content):
                path = f"messages.{index}.content.{place}"
                if isinstance(block, ImageBlock):
                    yield path, block
                elif isinstance(block, ToolResultBlock) and isinstance(block.content, list):
                    for inner, part in enumerate(block.content):
                        if isinstance(part, ImageBlock):
                            yield f"{path}.content.{inner}", part


def _decode_base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _refusal(INVALID_REQUEST, where, "not valid base64") from None


def _refusal(condition: Condition, where: str, why: str) -> ApiError:
    return ApiError(condition, f"{where}: {UNREADABLE}: {why}", param=where)
