"""Request, message and key ids. Clocks and randomness are arguments of the callers' choosing or the system's own."""

from __future__ import annotations

import re
import secrets
import time

from shared.base32 import encode_base32

REQUEST_ID = re.compile(r"req_[0-9a-hjkmnp-tv-z]{26}")


def new_request_id(now_ms: int | None = None) -> str:
    """`req_` and a ULID: 48 bits of Unix milliseconds, then 80 random bits, so that ids sort by time."""
    timestamp = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return "req_" + encode_base32((timestamp & ((1 << 48) - 1)) << 80 | secrets.randbits(80), 26)


def new_message_id() -> str:
    """`msg_` and 32 hex characters. Unique: agents loop for ever on a repeated one."""
    return "msg_" + secrets.token_hex(16)


def new_record_id(prefix: str) -> str:
    """An id for a stored record: `prefix`, an underscore and 80 random bits."""
    return f"{prefix}_{encode_base32(secrets.randbits(80), 16)}"
