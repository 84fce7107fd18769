"""Users, organizations, projects and memberships, in Redis.

Decides how they are written down, and that each change is one transaction with its invalidation in it. Must not know
passwords (it is handed their hashes), sessions or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from edge.auth import redis_names as names
from edge.auth.limits import limit_field, read_limits
from edge.auth.store import RecordExists, UnknownRecord, read_hash, read_set, run_script

MAX_EMAIL = 254  # RFC 5321 §4.5.3.1.3, less the brackets

_CREATE_USER = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX') then return 0 end
redis.call('HSET', KEYS[2], unpack(ARGV, 2))
redis.call('SADD', KEYS[3], ARGV[1])
return 1
"""
_CREATE_ORG = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'status', 'active', 'created_at', ARGV[2])
redis.call('SADD', KEYS[2], ARGV[1])
return 1
"""
_CREATE_PROJECT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
return redis.call('SADD', KEYS[2], ARGV[1])
"""
_SET_ROLE = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[3], ARGV[2], ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1
"""
_REMOVE_MEMBER = """
local removed = redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return removed
"""
_SET_FIELDS = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
for at = 3, #ARGV, 2 do
  if ARGV[at + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[at])
  else redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
end
redis.call('PUBLISH', ARGV[1], ARGV[2])
return 1
"""
_CHANGE_HASH = """
if ARGV[2] ~= '' and redis.call('HGET', KEYS[1], 'password_version') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'password', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'password_version', 1)
for _, digest in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  redis.call('DEL', ARGV[4] .. digest)
  redis.call('PUBLISH', ARGV[1], digest)
end
redis.call('DEL', KEYS[2])
for _, digest in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  if redis.call('HGET', ARGV[5] .. digest, 'status') == 'active' then
    redis.call('HSET', ARGV[5] .. digest, 'status', 'revoked')
    redis.call('ZADD', KEYS[3], 'XX', 'LT', redis.call('TIME')[1], digest)
    redis.call('PUBLISH', ARGV[1], digest)
  end
end
return 1
"""
_TO_ALL = (names.INVALIDATIONS, names.EVERYTHING)


@dataclass(frozen=True, slots=True)
class User:
    """A person who may log in.

    Attributes:
        status: `active` or `disabled`. password: its hash as a PHC string.
        password_version: counts changes; a session and a CLI token are good for the one that they were made under.
    """

    id: str
    email: str
    name: str
    status: str
    password: str
    password_version: int
    created_at_s: int

    def __repr__(self) -> str:
        return f"User({self.id}, {self.status})"


@dataclass(frozen=True, slots=True)
class Membership:
    """A user's part in an organization."""

    org: str
    role: str
    org_is_active: bool
    projects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Organization:
    """An organization as operators see it; `members` is user id to role."""

    id: str
    status: str
    projects: tuple[str, ...]
    members: Mapping[str, str]
    limits: Mapping[str, int]


def canonical_email(text: str) -> str:
    """The form under which an address is stored and looked up: no spaces around it, lower case."""
    return text.strip().lower()


def is_email(text: str) -> bool:
    """Whether `text` may be a user's address. Nothing is ever sent to it, so its form is all that matters."""
    local, at, domain = text.partition("@")
    is_whole = bool(local and at and domain) and "@" not in domain
    return is_whole and len(text) <= MAX_EMAIL and text.isprintable() and " " not in text


class RedisAccounts:
    """Everything about people and organizations but keys and sessions."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def create_user(self, user: User) -> None:
        """Store a new user under a canonical address.

        Raises:
            RecordExists: another has the address.
        """
        fields = {
            "id": user.id,
            "email": user.email,
            "name": user.name,
            "status": user.status,
            "password": user.password,
            "password_version": str(user.password_version),
            "created_at": str(user.created_at_s),
        }
        keys = [names.user_email(user.email), names.user(user.id), names.USERS]
        flat = [part for pair in fields.items() for part in pair]
        if not await run_script(self._redis, _CREATE_USER, keys, user.id, *flat):
            raise RecordExists(f"there is a user {user.email} already")

    async def find_user(self, email: str) -> User | None:
        """The user with this address, in any case. It takes two reads, so that time doesn't tell who exists."""
        user_id = await self._redis.get(names.user_email(canonical_email(email)))
        return await self.fetch_user("nobody" if user_id is None else str(user_id))

    async def fetch_user(self, user_id: str) -> User | None:
        """The user with this id."""
        stored = await read_hash(self._redis, names.user(user_id))
        if not stored:
            return None
        return User(
            id=stored["id"],
            email=stored["email"],
            name=stored["name"],
            status=stored["status"],
            password=stored["password"],
            password_version=int(stored["password_version"]),
            created_at_s=int(stored["created_at"]),
        )

    async def require_user(self, email: str) -> User:
        """The same for operators.

        Raises:
            UnknownRecord: there is no such user.
        """
        user = await self.find_user(email)
        if user is None:
            raise UnknownRecord(f"there is no user {canonical_email(email)}")
        return user

    async def set_user_status(self, user_id: str, status: str) -> None:
        """Make a user `active` or `disabled`; sessions and keys of a disabled one open nothing, within a second."""
        await run_script(self._redis, _SET_FIELDS, [names.user(user_id)], *_TO_ALL, "status", status)

    async def set_password(self, user_id: str, password: str, if_version: int | None = None) -> bool:
        """Change a password's hash, which ends all sessions and CLI tokens, but no API keys.

        Returns:
            False if it was changed since `if_version`.
        """
        expected = "" if if_version is None else str(if_version)
        keys = [names.user(user_id), names.user_sessions(user_id), names.user_tokens(user_id)]
        arguments = (names.INVALIDATIONS, expected, password, names.SESSION_PREFIX, names.KEY_PREFIX)
        return bool(await run_script(self._redis, _CHANGE_HASH, keys, *arguments))

    async def create_organization(self, org: str, created_at_s: int) -> None:
        """Store an organization.

        Raises:
            RecordExists: there is one of this name.
        """
        if not await run_script(self._redis, _CREATE_ORG, [names.org(org), names.ORGS], org, created_at_s):
            raise RecordExists(f"there is an organization {org} already")

    async def create_project(self, org: str, project: str) -> None:
        """Store a project.

        Raises:
            UnknownRecord: there is no such organization.
            RecordExists: it has the project.
        """
        verdict = await run_script(self._redis, _CREATE_PROJECT, [names.org(org), names.org_projects(org)], project)
        if verdict < 0:
            raise UnknownRecord(f"there is no organization {org}")
        if verdict == 0:
            raise RecordExists(f"organization {org} has a project {project} already")

    async def set_role(self, org: str, user_id: str, role: str) -> None:
        """Make a user a member of an organization, or change his role there.

        Raises:
            UnknownRecord: there is no such organization.
        """
        keys = [names.org(org), names.user_orgs(user_id), names.org_members(org)]
        if not await run_script(self._redis, _SET_ROLE, keys, org, user_id, role, *_TO_ALL):
            raise UnknownRecord(f"there is no organization {org}")

    async def remove_member(self, org: str, user_id: str) -> None:
        """End a membership; the user's keys of this organization open nothing any more.

        Raises:
            UnknownRecord: the user is no member.
        """
        keys = [names.user_orgs(user_id), names.org_members(org)]
        if not await run_script(self._redis, _REMOVE_MEMBER, keys, org, user_id, *_TO_ALL):
            raise UnknownRecord(f"the user is no member of {org}")

    async def set_limits(self, org: str, changes: Mapping[str, int | None]) -> None:
        """Set some limits of an organization, and lift those that are None.

        Raises:
            UnknownRecord: there is no such organization.
        """
        flat = [
            part
            for name, value in changes.items()
            for part in (limit_field(name), "" if value is None else str(value))
        ]
        if not await run_script(self._redis, _SET_FIELDS, [names.org(org)], *_TO_ALL, *flat):
            raise UnknownRecord(f"there is no organization {org}")

    async def list_memberships(self, user_id: str) -> list[Membership]:
        """The organizations of a user, by name."""
        roles = await read_hash(self._redis, names.user_orgs(user_id))
        async with self._redis.pipeline(transaction=False) as reads:
            for org in sorted(roles):
                reads.hget(names.org(org), "status")
                reads.smembers(names.org_projects(org))
            found = await reads.execute()
        return [
            Membership(org, roles[org], found[2 * at] == "active", tuple(sorted(found[2 * at + 1])))
            for at, org in enumerate(sorted(roles))
        ]

    async def list_organizations(self) -> list[Organization]:
        """All organizations, by name."""
        orgs = sorted(await read_set(self._redis, names.ORGS))
        return [await self._read_organization(org) for org in orgs]

    async def list_users(self) -> list[User]:
        """All users, by address."""
        ids = await read_set(self._redis, names.USERS)
        users = [user for user_id in ids if (user := await self.fetch_user(user_id)) is not None]
        return sorted(users, key=lambda user: user.email)

    async def _read_organization(self, org: str) -> Organization:
        async with self._redis.pipeline(transaction=False) as reads:
            reads.hgetall(names.org(org))
            reads.smembers(names.org_projects(org))
            reads.hgetall(names.org_members(org))
            stored, projects, members = await reads.execute()
        typed: dict[str, Any] = stored
        return Organization(org, typed["status"], tuple(sorted(projects)), members, read_limits(typed))
