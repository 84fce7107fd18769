"""Log-in by device (RFC 8628): the codes, and the store in Redis of those that wait.

Decides how long a code lives, how fast may be asked, and that one is good for one token. Must not know HTTP, and
never holds a token: it is minted when the device fetches it.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from redis.asyncio import Redis

from edge.auth import redis_names as names
from edge.auth.store import read_hash, run_change, run_script

LIFETIME_S = 600
INTERVAL_S = 5
SLOWER_BY_S = 5
MAX_WRONG_CODES = 10
TOKEN_LIFETIME_S = 90 * 86_400
_CONSONANTS = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels, no words (RFC 8628 §6.1)
_CODE_LENGTH = 8

_BEGIN = """
if not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'EX', ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
"""
_DECIDE = """
if redis.call('HGET', KEYS[1], 'status') ~= 'pending' then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
redis.call('DEL', KEYS[2])
return 1
"""
# Times are Redis's, in milliseconds, so that it does not matter which edge is asked.
_POLL = """
local found = redis.call('HMGET', KEYS[1], 'status', 'polled_at', 'interval', 'user', 'org', 'project', 'client',
  'password_version')
local status = found[1]
if not status then return {} end
if status ~= 'pending' then
  redis.call('DEL', KEYS[1])
  return {status, found[4] or '', found[5] or '', found[6] or '', found[7] or '', found[8] or '0'}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last, interval = tonumber(found[2]), tonumber(found[3])
redis.call('HSET', KEYS[1], 'polled_at', string.format('%.0f', now))
if last and now - last < interval * 1000 then
  redis.call('HSET', KEYS[1], 'interval', interval + ARGV[1])
  return {'slow_down'}
end
return {'pending'}
"""


@dataclass(frozen=True, slots=True)
class Codes:
    """What a device gets. `device_code` is a secret; `user_code` is what a person types."""

    device_code: str
    user_code: str

    def __repr__(self) -> str:
        return "Codes(…)"


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks to be let in: what the device says of itself, from where, since when (Unix seconds)."""

    client: str
    address: str
    created_at_s: int


@dataclass(frozen=True, slots=True)
class Approved:
    """What a person agreed to; `password_version` is that of the session in which he did."""

    user: str
    password_version: int
    org: str
    project: str
    client: str


@dataclass(frozen=True, slots=True)
class Pending:
    """Nobody has said anything yet."""


@dataclass(frozen=True, slots=True)
class TooFast:
    """The device asks more often than it was told to, and has to wait longer from now on."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A person said no."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The code was never given, is out of date, or was used."""


Outcome = Approved | Pending | TooFast | Denied | Expired


def digest_of(device_code: str) -> str:
    """SHA-256 in hex, its name in the store."""
    return hashlib.sha256(device_code.encode()).hexdigest()


def parse_user_code(text: str) -> str | None:
    """What a person typed, in any case, with or without the dash, in the form in which it was given."""
    letters = "".join(character for character in text.upper() if character not in " -")
    if len(letters) != _CODE_LENGTH or not set(letters) <= set(_CONSONANTS):
        return None
    return f"{letters[:4]}-{letters[4:]}"


def _new_user_code() -> str:
    letters = "".join(secrets.choice(_CONSONANTS) for _ in range(_CODE_LENGTH))
    return f"{letters[:4]}-{letters[4:]}"


class RedisDevices:
    """Waiting log-ins as hashes that expire, found by either code."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def begin(self, asking: Asking) -> Codes:
        """New codes for a device. Of 26 thousand million user codes one may be taken; then there is another."""
        while True:
            codes = Codes(secrets.token_urlsafe(32), _new_user_code())
            digest = digest_of(codes.device_code)
            fields = {
                "status": "pending",
                "user_code": codes.user_code,
                "client": asking.client,
                "address": asking.address,
                "created_at": str(asking.created_at_s),
                "interval": str(INTERVAL_S),
            }
            keys = [names.device(digest), names.device_user_code(codes.user_code)]
            flat = [part for pair in fields.items() for part in pair]
            if await run_script(self._redis, _BEGIN, keys, digest, LIFETIME_S, *flat):
                return codes

    async def find(self, user_code: str) -> Asking | None:
        """Who waits under this code."""
        digest = await self._redis.get(names.device_user_code(user_code))
        stored = {} if digest is None else await read_hash(self._redis, names.device(str(digest)))
        if not stored:
            return None
        return Asking(stored["client"], stored["address"], int(stored["created_at"]))

    async def approve(self, user_code: str, user: str, password_version: int, org: str, project: str) -> bool:
        """Let the device in; False if nobody waits under this code."""
        who = ("user", user, "password_version", str(password_version))
        return await self._decide(user_code, "status", "approved", *who, "org", org, "project", project)

    async def deny(self, user_code: str) -> bool:
        """Send the device away; False if nobody waits under this code."""
        return await self._decide(user_code, "status", "denied")

    async def poll(self, device_code: str) -> Outcome:
        """What became of it. An approval is told once, whoever asks at the same moment."""
        told = await run_change(self._redis, _POLL, [names.device(digest_of(device_code))], SLOWER_BY_S)
        match [str(part) for part in told]:
            case ["approved", user, org, project, client, version]:
                return Approved(user, int(version), org, project, client)
            case ["denied", *_]:
                return Denied()
            case ["slow_down"]:
                return TooFast()
            case ["pending"]:
                return Pending()
            case _:
                return Expired()

    async def _decide(self, user_code: str, *fields: str) -> bool:
        name = names.device_user_code(user_code)
        digest = await self._redis.get(name)
        if digest is None:
            return False
        return bool(await run_script(self._redis, _DECIDE, [names.device(str(digest)), name], *fields))
