"""The stored keys and organizations: what the edge asks of a store, and the store in Redis.

Decides how keys are written down and that every change is published with it. Must not know of caches, headers or
HTTP, nor ever see a whole key: callers pass its SHA-256.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

SCOPES = ("infer:run", "models:read")
INVALIDATIONS = "b3os:keys:invalidated"  # messages: a digest, or EVERYTHING
EVERYTHING = "*"
LOOKUP_S = 1.0
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_ORGS = "b3os:orgs"


class StoreUnavailable(Exception):
    """Redis does not answer."""


class UnknownRecord(Exception):
    """There is no such organization, project or key; the message is one sentence for an operator."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as it is stored.

    Attributes:
        kind: `sk` or `pat`. status: `active` or `revoked`. hint: first four characters of the secret.
        created_at_s, expires_at_s: Unix seconds; None never expires.
        org_is_active: whether the organization may call at all.
    """

    id: str
    kind: str
    org: str
    project: str
    name: str
    scopes: tuple[str, ...]
    status: str
    hint: str
    created_at_s: int
    expires_at_s: int | None
    org_is_active: bool = True

    def is_usable(self, now_s: float) -> bool:
        """Whether the key opens anything at `now_s` (Unix seconds)."""
        in_time = self.expires_at_s is None or now_s < self.expires_at_s
        return self.status == "active" and self.org_is_active and in_time


def is_name(text: str) -> bool:
    """Whether `text` may name an organization or a project."""
    return _NAME.fullmatch(text) is not None


class RedisKeyStore:
    """Keys as hashes `b3os:key:<digest>`, organizations as hashes `b3os:org:<id>` with a set of their digests."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def fetch_key(self, digest: str) -> KeyRecord | None:
        """The key of this SHA-256, or None. Two reads, since the organization is not known before the key is.

        Raises:
            StoreUnavailable: the store does not answer within about `LOOKUP_S`.
        """
        try:
            async with asyncio.timeout(LOOKUP_S):
                return await self._read_key(digest)
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreUnavailable(type(error).__name__) from error

    async def create_key(self, digest: str, record: KeyRecord, *, create_missing: bool = False) -> None:
        """Store a key, with its organization and project where `create_missing`.

        Raises:
            UnknownRecord: the organization or the project does not exist.
        """
        if not create_missing:
            await self._require(record.org, record.project)
        async with self._redis.pipeline(transaction=True) as changes:
            changes.sadd(_ORGS, record.org)
            changes.hsetnx(_org(record.org), "status", "active")
            changes.hsetnx(_org(record.org), "created_at", str(record.created_at_s))
            changes.sadd(f"{_org(record.org)}:projects", record.project)
            changes.hset(_key(digest), mapping=_to_hash(record))
            changes.sadd(f"{_org(record.org)}:keys", digest)
            changes.set(f"b3os:key-id:{record.id}", digest)
            changes.publish(INVALIDATIONS, digest)  # it may be cached as unknown
            await changes.execute()

    async def list_keys(self, org: str | None = None) -> list[KeyRecord]:
        """The keys of an organization, or of all, oldest first."""
        orgs = [org] if org is not None else sorted(await self._members(_ORGS))
        digests = [digest for each in orgs for digest in await self._members(f"{_org(each)}:keys")]
        found = [record for digest in digests if (record := await self._read_key(digest)) is not None]
        return sorted(found, key=lambda record: (record.created_at_s, record.id))

    async def revoke_key(self, key_id: str) -> KeyRecord:
        """Revoke for good, and tell every edge in the same transaction.

        Raises:
            UnknownRecord: there is no key of this id.
        """
        digest = await self._redis.get(f"b3os:key-id:{key_id}")
        if digest is None:
            raise UnknownRecord(f"there is no key {key_id}")
        async with self._redis.pipeline(transaction=True) as changes:
            changes.hset(_key(str(digest)), "status", "revoked")
            changes.publish(INVALIDATIONS, str(digest))
            await changes.execute()
        record = await self._read_key(str(digest))
        if record is None:
            raise UnknownRecord(f"there is no key {key_id}")
        return record

    async def set_organization_status(self, org: str, status: str) -> None:
        """Make an organization `active` or `suspended`; every edge forgets all that it cached.

        Raises:
            UnknownRecord: there is no such organization.
        """
        if not await self._redis.exists(_org(org)):
            raise UnknownRecord(f"there is no organization {org}")
        async with self._redis.pipeline(transaction=True) as changes:
            changes.hset(_org(org), "status", status)
            changes.publish(INVALIDATIONS, EVERYTHING)
            await changes.execute()

    async def _require(self, org: str, project: str) -> None:
        if not await self._redis.exists(_org(org)):
            raise UnknownRecord(f"there is no organization {org}")
        if project not in await self._members(f"{_org(org)}:projects"):
            raise UnknownRecord(f"organization {org} has no project {project}")

    async def _members(self, name: str) -> set[str]:
        return cast("set[str]", await self._redis.smembers(name))

    async def _hash(self, name: str) -> dict[str, str]:
        return cast("dict[str, str]", await self._redis.hgetall(name))

    async def _read_key(self, digest: str) -> KeyRecord | None:
        if not (stored := await self._hash(_key(digest))):
            return None
        organization = await self._hash(_org(stored["org"]))
        return _from_hash(stored, org_is_active=organization.get("status") == "active")


def _key(digest: str) -> str:
    return f"b3os:key:{digest}"


def _org(org: str) -> str:
    return f"b3os:org:{org}"


def _to_hash(record: KeyRecord) -> dict[Any, Any]:
    return {
        "id": record.id,
        "kind": record.kind,
        "org": record.org,
        "project": record.project,
        "name": record.name,
        "scopes": " ".join(record.scopes),
        "status": record.status,
        "hint": record.hint,
        "created_at": str(record.created_at_s),
        "expires_at": "" if record.expires_at_s is None else str(record.expires_at_s),
    }


def _from_hash(stored: dict[str, str], *, org_is_active: bool) -> KeyRecord:
    return KeyRecord(
        id=stored["id"],
        kind=stored["kind"],
        org=stored["org"],
        project=stored["project"],
        name=stored["name"],
        scopes=tuple(stored["scopes"].split()),
        status=stored["status"],
        hint=stored["hint"],
        created_at_s=int(stored["created_at"]),
        expires_at_s=int(stored["expires_at"]) if stored["expires_at"] else None,
        org_is_active=org_is_active,
    )
