"""What of a request's body says where it should go: the model, and what stays the same from turn to turn.

Decides by a look at the bytes, without reading the whole as JSON: docs/decisions/0011 says why that is enough. Must
not know nodes. What is wrong in a body is its node's to say, so nothing here fails.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shared.model_name import MESSAGES, WINDOW_BYTES, cut_windows, look_for_models

KEY_BITS = 60
"""Of what keys and nodes are mixed from: Python multiplies such numbers quickly."""
_LONGEST_TEXT = 512
_TEXT = rb'"((?:[^"\\]|\\.){0,%d})'
# A string, or the text of the first block.
_SYSTEM = re.compile(
    rb'"system"\s{0,8}:\s{0,8}(?:\[\s{0,8}\{\s{0,8}(?:"type"\s{0,8}:\s{0,8}"text"\s{0,8},\s{0,8})?"text"\s{0,8}:\s{0,8})?'
    + _TEXT % _LONGEST_TEXT
)
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Affinity:
    """Where a request belongs.

    Attributes:
        models: the names that may be its model's, the likeliest first. key: the same for all turns of a conversation.
    """

    models: tuple[str, ...]
    key: int


def read_affinity(org: str, body: bytes) -> Affinity:
    """Of one organization's request: others never share a prefix cache with it."""
    parts = cut_windows(body)
    digest = hashlib.blake2b(digest_size=8)
    for text in (org.encode(), _first(_SYSTEM, parts), _first_message(parts)):
        digest.update(len(text).to_bytes(4))
        digest.update(text)
    return Affinity(look_for_models(body), int.from_bytes(digest.digest()) >> (64 - KEY_BITS))


def _first(pattern: re.Pattern[bytes], parts: list[bytes]) -> bytes:
    for part in parts:
        if match := pattern.search(part):
            return match[1]
    return b""


def _first_message(parts: list[bytes]) -> bytes:
    """The texts of the first message; of one that is too long or odd, its beginning.

    Not its bytes: agents put `cache_control` on the last message, and take it away once there is another one.
    """
    for part in parts:
        if match := MESSAGES.search(part):
            window = part[match.end() : match.end() + WINDOW_BYTES]
            try:
                message, _ = _decode(window.decode(errors="replace"))
                return "\0".join(_texts(message)).encode(errors="replace")
            except (ValueError, RecursionError):
                return window[:_LONGEST_TEXT]
    return b""


def _texts(message: Any) -> Iterator[str]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            text = block.get("text") if isinstance(block, dict) else None
            if isinstance(text, str):
                yield text
