"""The bytes of golden streams: where they are kept, and what of a stream is compared.

Decides what may differ from one stream to the next. Must not know what the streams say.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.clients.golden import Conversation

FOLDER = Path(__file__).parents[1] / "golden"
_NEW_IN_EACH = (
    r'("id":"msg_)([0-9a-f]{32})(?=")',
    r'("id":"chatcmpl-tool-)([0-9a-f]+)(?=")',
    r'("request_id":"req_)([0-9a-hjkmnp-tv-z]{26})(?=")',
    r'("signature":")([0-9a-f]{64})(?=")',
)
_TIMES = r'("(?:ttft|total)_ms":)[0-9.]+'


def golden_path(conversation: Conversation) -> Path:
    """Where its stream is kept."""
    return FOLDER / f"{conversation.name.replace(' ', '-')}.sse"


def normalise(raw: bytes) -> bytes:
    """A stream without what differs: ids and signatures are numbers from 1 on, times are 0."""
    text = re.sub(_TIMES, r"\g<1>0", raw.decode())
    for pattern in _NEW_IN_EACH:
        text = _number(pattern, text)
    return text.encode()


def _number(pattern: str, text: str) -> str:
    seen: dict[str, int] = {}
    return re.sub(pattern, lambda found: f"{found[1]}{seen.setdefault(found[2], len(seen) + 1)}", text)
