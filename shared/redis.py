"""One tuned Redis client, so that a dead or frozen Redis costs a second and never a hung request.

Must not know what is stored: names of keys live beside the code that owns them.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared.settings import Section, SettingsError


class RedisSettings(Section):
    """`[redis]`: where Redis listens; credentials belong into the URL."""

    url: str = Field("redis://127.0.0.1:6379/0", pattern=r"^(redis|rediss|unix)://")

    @field_validator("url")
    @classmethod
    def _has_a_port(cls, url: str) -> str:
        try:
            _ = urlsplit(url).port
        except ValueError:
            raise ValueError("the port is not a number from 0 to 65535") from None
        return url


def connect_redis(url: str, *, max_connections: int = 32) -> Redis:
    """A client whose connections open lazily.

    redis-py's defaults wait 4 s on a refused and 25 s on a frozen server, and raise when the pool is empty; with
    these values it is 0.02 s, about 1 s, and a short wait. What is not answered in time is sent again, and may
    have been run the first time: a change has to know itself again (`edge/auth/store.py`; the node's by request).

    Raises:
        SettingsError: the URL has options that redis-py does not know.
    """
    try:
        return Redis.from_pool(_pool(url, max_connections))
    except (ValueError, TypeError):
        raise SettingsError("redis.url (B3OS_REDIS_URL): its options are not ones that redis-py takes") from None


def _pool(url: str, max_connections: int) -> BlockingConnectionPool:
    return BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=1,
        socket_timeout=0.5,
        socket_connect_timeout=0.25,
        retry=Retry(NoBackoff(), 1),
        health_check_interval=0,
        driver_info=None,  # no CLIENT SETINFO: on 7.0, which lacks it, no ACL can allow it
        decode_responses=True,
    )
