"""A program that waits to be let in, at the API and in Redis."""

from __future__ import annotations

import aiohttp

from edge.auth import redis_names as names
from tests.integration.edge.parts import Edge


async def begin(edge: Edge, client: str = "b3os-cli") -> str:
    """A program begins to wait; the code that it shows."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{edge.url}/v1/auth/device/code", json={"client": client}) as answer,
    ):
        code: str = (await answer.json())["user_code"]
        return code


async def name_of(edge: Edge, user_code: str) -> str | None:
    """Where in Redis lies who waits under a code; None once somebody has decided."""
    digest = await edge.redis.get(names.device_user_code(user_code))
    return None if digest is None else names.device(str(digest))


async def is_pending(edge: Edge, user_code: str) -> bool:
    """Whether nobody has decided."""
    name = await name_of(edge, user_code)
    return name is not None and await edge.redis.hget(name, "status") == "pending"


async def forget(edge: Edge, user_code: str) -> None:
    """As if ten minutes had passed."""
    name = await name_of(edge, user_code)
    assert await edge.redis.delete(name or "", names.device_user_code(user_code)) == 2
