"""One tuned Redis client, so that a dead or frozen Redis costs a second and never a hung request.

Decides what may be told of a Redis that fails: one word. Its own texts hold names of keys, values and addresses. Must
not know what is stored: names of keys live beside the code that owns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from shared.settings import Section, SettingsError

REFUSALS: Mapping[str, str] = MappingProxyType(
    {
        "WRONGPASS": "user or password in B3OS_REDIS_URL are wrong",
        "NOAUTH": "B3OS_REDIS_URL has no password",
        "NOPERM": "its user lacks a right: make the ACL file anew",
        "LOADING": "Redis reads its files, and answers when it has",
        "READONLY": "B3OS_REDIS_URL leads to a replica",
        "MASTERDOWN": "B3OS_REDIS_URL leads to a replica that has lost its master",
        "OOM": "Redis has no memory left",
        "MISCONF": "Redis can't write to its disk",
        "NOREPLICAS": "Redis lacks the replicas without which it takes no writes",
        "BUSY": "a script of somebody's runs without end",
        "MOVED": "B3OS_REDIS_URL leads to a Redis Cluster, which is not supported",
        "CROSSSLOT": "B3OS_REDIS_URL leads to a Redis Cluster, which is not supported",
        "CLUSTERDOWN": "B3OS_REDIS_URL leads to a Redis Cluster, which is not supported",
    }
)
"""With what words Redis refuses, and what that means for whoever runs it."""
FAILURES = (RedisError, OSError, TimeoutError, RuntimeError, UnicodeDecodeError)
"""How a question to Redis may fail. uvloop has a plain RuntimeError where a connection ends in the moment in which
something is written to it; and what somebody else stored may be no text."""


def refusal_of(error: BaseException) -> str | None:
    """The word with which Redis refused; None where it did not, or with none that is known."""
    if not isinstance(error, RedisError):
        return None
    # redis-py takes the words that it knows out of the text, and puts a command before it that was one of several.
    word = getattr(error, "status_code", None)
    text = str(error).rpartition("caused error: ")[2].lstrip("('\"")
    return next((each for each in (word, text.partition(" ")[0]) if each in REFUSALS), None)


def cause_of(error: BaseException) -> str:
    """What went wrong, fit for a log: Redis's own word, else the kind of the exception."""
    return refusal_of(error) or type(error).__name__


class RedisSettings(Section):
    """`[redis]`: where Redis listens; credentials belong into the URL."""

    url: str = Field("redis://127.0.0.1:6379/0", pattern=r"^(redis|rediss|unix)://")

    @property
    def place(self) -> str:
        """The server or its socket: what is not secret in the URL."""
        parts = urlsplit(self.url)
        return parts.path if parts.scheme == "unix" else parts.netloc.rpartition("@")[2]

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
