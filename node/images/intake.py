"""The images of a request, decoded, by the path of their block.

Decides which sources are taken, and the refusal of each that isn't. Must not know the engine.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from node.images.decode import BadImage, NotAnImage, decode_image
from node.wire.request import ImageBlock, MessagesRequest, ToolResultBlock, UserMessage
from shared.errors import IMAGE_KIND, INVALID_REQUEST, UNSUPPORTED_PARAMETER, ApiError

MAX_IMAGES = 20
UNREADABLE = "Could not process image"
"""Agents look for these words and go on without the picture; on others, every later turn would be refused as well."""
_decoders = ThreadPoolExecutor(2, thread_name_prefix="images")


async def take_images(request: MessagesRequest, *, takes_images: bool) -> dict[str, Any]:
    """Decode every image, in order.

    Raises:
        ApiError: the model has no vision, a source that is not taken, too many images, or one that is none.
    """
    blocks = dict(_walk(request))
    for path, block in blocks.items():
        if not takes_images:
            raise ApiError(UNSUPPORTED_PARAMETER, f"{path}: {UNREADABLE}: this model takes none", param=path)
        if block.source.type == "url":
            where = f"{path}.source.type"
            raise ApiError(
                UNSUPPORTED_PARAMETER, f"{where}: {UNREADABLE}: this node takes 'base64' only", param=where
            )
    if len(blocks) > MAX_IMAGES:
        where = list(blocks)[MAX_IMAGES]
        raise ApiError(INVALID_REQUEST, f"{where}: {UNREADABLE}: at most {MAX_IMAGES} in a request", param=where)
    loop = asyncio.get_running_loop()
    return {path: await loop.run_in_executor(_decoders, _decode, block, path) for path, block in blocks.items()}


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


def _decode(block: ImageBlock, path: str) -> Any:
    if block.source.type == "url":
        raise NotImplementedError
    where = f"{path}.source.data"
    try:
        data = base64.b64decode(block.source.data, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(INVALID_REQUEST, f"{where}: {UNREADABLE}: not valid base64", param=where) from None
    try:
        return decode_image(data)
    except NotAnImage:
        raise ApiError(IMAGE_KIND, f"{where}: {UNREADABLE}: not a PNG, JPEG, WebP or GIF", param=where) from None
    except BadImage as error:
        raise ApiError(INVALID_REQUEST, f"{where}: {UNREADABLE}: {error}", param=where) from None
