"""LiteLLM's `custom_auth`: keys in memory, by their SHA-256. LiteLLM loads it in its own environment.

It stands for a virtual key that LiteLLM has cached, and does less: no database is behind it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from fastapi import Request
from litellm.proxy._types import UserAPIKeyAuth  # type: ignore[import-not-found, unused-ignore]

KEYS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("keys.json").read_text())


async def check(request: Request, api_key: str) -> UserAPIKeyAuth:
    """Who is calling; what raises is a 401."""
    del request
    known = KEYS[hashlib.sha256(api_key.encode()).hexdigest()]
    return UserAPIKeyAuth(api_key=api_key, **known)
