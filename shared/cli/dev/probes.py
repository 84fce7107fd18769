"""Questions to the running parts: is Redis up, does a port say ready, is a key accepted?

Must not decide how long to wait nor what to print.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.redis import connect_redis

_TIMEOUT = aiohttp.ClientTimeout(total=5)


async def redis_answers(redis_url: str) -> bool:
    """Whether it takes commands; while it reads its append-only file it does not."""
    client: Redis = connect_redis(redis_url, max_connections=1)
    try:
        return bool(await client.ping())
    except (RedisError, OSError):
        return False
    finally:
        await client.aclose()


async def fetch_readiness(session: aiohttp.ClientSession, operator_url: str) -> tuple[int, dict[str, Any]]:
    """Status and facts of `/readyz`; 0 and none while nobody answers."""
    try:
        async with session.get(f"{operator_url}/readyz", timeout=_TIMEOUT) as response:
            facts = await response.json()
            return response.status, facts if isinstance(facts, dict) else {}
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return 0, {}


async def is_key_accepted(session: aiohttp.ClientSession, base_url: str, key: str) -> bool:
    """Whether the edge lets the key in, whatever the nodes behind it say."""
    try:
        async with session.get(
            f"{base_url}/models", headers={"Authorization": f"Bearer {key}"}, timeout=_TIMEOUT
        ) as response:
            return response.status not in (401, 402, 403)
    except (aiohttp.ClientError, TimeoutError):
        return False


def read_kept_key(facts_file: Path) -> str | None:
    """The key of an earlier start, or None."""
    try:
        key = json.loads(facts_file.read_text())["api_key"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return key if isinstance(key, str) else None
