"""A way to Redis on which an answer is lost: the command was run, and the connection ends before that is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from redis.asyncio import Redis

from shared.redis import connect_redis


@dataclass
class LosingRedis:
    """One that loses what it is told to.

    Attributes:
        will_lose: whether the next answer of a script is lost. lost: how many were.
    """

    port: int
    will_lose: bool = False
    lost: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on, one question after the other, since no client here asks twice before it is answered."""
        with contextlib.suppress(ConnectionError):
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                while asked := await reader.read(1 << 16):
                    back.write(asked)
                    answer = await there.read(1 << 16)
                    if self.will_lose and b"EVALSHA" in asked and not answer.startswith(b"-"):
                        self.will_lose = False
                        self.lost += 1
                        return
                    writer.write(answer)
            finally:
                back.close()
                writer.close()


@contextlib.asynccontextmanager
async def losing_redis(url: str) -> AsyncIterator[tuple[LosingRedis, Redis]]:
    """The way to the server of `url`, and a client that takes it."""
    parts = urlsplit(url)
    way = LosingRedis(parts.port or 0)
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    redis = connect_redis(url.replace(f":{parts.port}", f":{port}"))
    try:
        yield way, redis
    finally:
        await redis.aclose()
        server.close()
