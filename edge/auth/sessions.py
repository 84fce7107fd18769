"""Sessions of the dashboard: their values, and the store in Redis.

Decides how long a session lives and that its value is never stored. Must not know cookies, headers or passwords.
Redis's own expiry is the idle timer: each read of a session that was asked for renews it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from redis.asyncio import Redis

from edge.auth import redis_names as names
from edge.auth.accounts import User
from edge.auth.limits import read_limits
from edge.auth.scopes import ROLES
from edge.auth.store import answering, read_hash, run_script
from shared.ids import new_record_id

IDLE_S = 12 * 3600
LIFETIME_S = 14 * 86_400
MAX_SESSIONS = 32
"""Of one user; the oldest goes when there are more."""
_VALUE = re.compile(r"[A-Za-z0-9_-]{43}")  # 256 bits in base64url

_OPEN = """
local user = redis.call('HMGET', KEYS[2], 'status', 'password_version')
if user[1] ~= 'active' or user[2] ~= ARGV[2] then return 0 end
if KEYS[4] then
  if redis.call('DEL', KEYS[4]) == 0 and ARGV[7] == 'must' then return 0 end
  redis.call('ZREM', KEYS[3], ARGV[6])
  redis.call('PUBLISH', ARGV[8], ARGV[6])
end
redis.call('HSET', KEYS[1], unpack(ARGV, 11))
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
redis.call('EXPIRE', KEYS[3], ARGV[5])
for _, digest in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1 - ARGV[9])) do
  redis.call('DEL', ARGV[10] .. digest)
  redis.call('ZREM', KEYS[3], digest)
  redis.call('PUBLISH', ARGV[8], digest)
end
return 1
"""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as it is stored, and how its user stands now.

    Attributes:
        user: the user's id. org, project: where he works now, if he is a member anywhere. role: his role there now.
        csrf: the token that goes with every change. ends_at_s: Unix seconds of its end, however busy it is.
        is_backed: the user may log in, and has the password that he had.
        password_version: of the password that he had.
    """

    id: str
    user: str
    email: str
    name: str
    org: str | None
    project: str | None
    csrf: str
    ends_at_s: int
    is_backed: bool = True
    password_version: int = 0
    role: str | None = None
    org_is_active: bool = False
    org_limits: Mapping[str, int] = field(default_factory=dict)

    def is_usable(self, now_s: float) -> bool:
        """Whether it is a session at all at `now_s` (Unix seconds)."""
        return self.is_backed and now_s < self.ends_at_s

    @property
    def granted(self) -> tuple[str, ...]:
        """What the user may do in the organization where he works."""
        return ROLES.get(self.role or "", ()) if self.org_is_active else ()

    def __repr__(self) -> str:
        return f"SessionRecord({self.id})"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session works."""

    org: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Replaced:
    """A session that ends where another begins. `must_live`: the other only begins if this one was alive."""

    digest: str
    must_live: bool


def new_value() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def is_value(text: str) -> bool:
    """Whether `text` may be a session's value."""
    return _VALUE.fullmatch(text) is not None


def digest_of(value: str) -> str:
    """SHA-256 in hex: the session's name in the store. Who reads the store can't use what he finds there."""
    return hashlib.sha256(value.encode()).hexdigest()


class RedisSessions:
    """Sessions as hashes that expire."""

    def __init__(
        self, redis: Redis, wall_clock: Callable[[], float], *, idle_s: int = IDLE_S, lifetime_s: int = LIFETIME_S
    ) -> None:
        """`wall_clock` gives Unix seconds."""
        self._redis = redis
        self._wall_clock = wall_clock
        self._idle_s = idle_s
        self._lifetime_s = lifetime_s

    async def open_session(
        self, user: User, place: Place, replaced: Replaced | None = None, ends_at_s: int | None = None
    ) -> str | None:
        """Begin a session and return its value; None if the user, his password or `replaced` is not what it was.

        Args:
            ends_at_s: the end of the session that it goes on with; a whole lifetime without it.
        """
        value, now_s = new_value(), int(self._wall_clock())
        end_s = now_s + self._lifetime_s if ends_at_s is None else ends_at_s
        fields = {
            "id": new_record_id("ses"),
            "user": user.id,
            "password_version": str(user.password_version),
            "org": place.org or "",
            "project": place.project or "",
            "csrf": new_value(),
            "ends_at": str(end_s),
        }
        digest = digest_of(value)
        keys = [names.session(digest), names.user(user.id), names.user_sessions(user.id)]
        opened = await run_script(
            self._redis,
            _OPEN,
            keys if replaced is None else [*keys, names.session(replaced.digest)],
            digest,
            user.password_version,
            self._ttl_s(end_s),
            now_s,
            self._lifetime_s,
            "" if replaced is None else replaced.digest,
            "must" if replaced is not None and replaced.must_live else "",
            names.INVALIDATIONS,
            MAX_SESSIONS,
            names.SESSION_PREFIX,
            *(part for pair in fields.items() for part in pair),
        )
        return value if opened else None

    async def fetch_session(self, digest: str) -> SessionRecord | None:
        """The session under this digest, or None; it lives `idle_s` longer from now.

        Raises:
            StoreUnavailable: the store does not answer in time.
        """
        async with answering():
            return await self._read_session(digest)

    async def close_session(self, digest: str, user_id: str) -> None:
        """End a session everywhere."""
        async with self._redis.pipeline(transaction=True) as changes:
            changes.delete(names.session(digest))
            changes.zrem(names.user_sessions(user_id), digest)
            changes.publish(names.INVALIDATIONS, digest)
            await changes.execute()

    async def _read_session(self, digest: str) -> SessionRecord | None:
        stored = await read_hash(self._redis, names.session(digest))
        if not stored:
            return None
        org, ends_at_s = stored["org"] or None, int(stored["ends_at"])
        no_org: dict[str, str] = {}
        async with self._redis.pipeline(transaction=False) as reads:
            reads.expire(names.session(digest), self._ttl_s(ends_at_s))  # brings back none that was closed meanwhile
            reads.hgetall(names.user(stored["user"]))
            if org is not None:
                reads.hget(names.user_orgs(stored["user"]), org)
                reads.hgetall(names.org(org))
            _, user, *place = await reads.execute()
        role, organization = place or (None, no_org)
        return SessionRecord(
            id=stored["id"],
            user=stored["user"],
            email=user.get("email", ""),
            name=user.get("name", ""),
            org=org,
            project=stored["project"] or None,
            csrf=stored["csrf"],
            ends_at_s=ends_at_s,
            is_backed=user.get("status") == "active" and user["password_version"] == stored["password_version"],
            password_version=int(stored["password_version"]),
            role=role,
            org_is_active=organization.get("status") == "active",
            org_limits=read_limits(organization),
        )

    def _ttl_s(self, ends_at_s: int) -> int:
        return max(1, min(self._idle_s, ends_at_s - int(self._wall_clock())))
