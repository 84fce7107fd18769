"""The stored keys: what the edge asks of a store, and the store in Redis.

Decides how keys are written down, what one may do now, and that every change is published with it. Must not know of
caches, headers or HTTP, nor ever see a whole key: callers pass its SHA-256.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis

from edge.auth import redis_names as names
from edge.auth.limits import read_limits
from edge.auth.scopes import ROLES
from edge.auth.store import UnknownRecord, answering, read_hash, read_set

MAX_GENERATIONS = 3
"""A key may be made with a key that was made with a key, and no further: each one is a read more."""
MAX_KEYS = 1000
"""Of one organization, dead ones included: they are listed whole."""
_FORGOTTEN_AT_ONCE = 100
# A key's end is the end of all that hang on it: their digests are found and published in the same step, so that none
# which is being made can slip through.
_REVOKE = """
local status = redis.call('HGET', KEYS[1], 'status')
if not status or status == 'revoked' then return {} end
redis.call('HSET', KEYS[1], 'status', 'revoked')
local ended = {ARGV[1]}
local at = 1
while ended[at] do
  redis.call('PUBLISH', ARGV[2], ended[at])
  for _, child in ipairs(redis.call('SMEMBERS', ARGV[3] .. ended[at] .. ':children')) do ended[#ended + 1] = child end
  at = at + 1
end
return ended
"""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class SpendCap:
    """What a key may spend in a `period`: `day`, `month` or `total`."""

    nano_usd: int
    period: str


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as it is stored, and how those stand on whom it depends.

    Attributes:
        kind: `sk` or `pat`. status: `active` or `revoked`. hint: first four characters of the secret.
        created_at_s, expires_at_s: Unix seconds; None never expires.
        org_is_active: whether the organization may call at all. org_limits: see `edge/auth/limits.py`.
        made_by: the id of the user who made it, if one did. maker_scopes: what he may do now, nothing if he may not
            even log in; None where no user made it.
        parent_digest: the key that made it, if one did. parent: that key as it stands now.
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
    org_limits: Mapping[str, int] = field(default_factory=dict)
    spend_cap: SpendCap | None = None
    made_by: str | None = None
    maker_scopes: tuple[str, ...] | None = None
    parent_digest: str | None = None
    parent: KeyRecord | None = None

    def is_over(self, now_s: float) -> bool:
        """Whether the key itself has ended for good at `now_s` (Unix seconds)."""
        return self.status != "active" or (self.expires_at_s is not None and now_s >= self.expires_at_s)

    def is_usable(self, now_s: float) -> bool:
        """Whether the key opens anything at `now_s` (Unix seconds). It lives no longer than what made it."""
        is_backed = self.maker_scopes != () and (self.parent is None or self.parent.is_usable(now_s))
        has_lost_parent = self.parent_digest is not None and self.parent is None
        return self.org_is_active and is_backed and not has_lost_parent and not self.is_over(now_s)

    @property
    def granted(self) -> tuple[str, ...]:
        """Its scopes, as far as its maker has them now."""
        scopes = self.scopes
        if self.maker_scopes is not None:
            scopes = tuple(scope for scope in scopes if scope in self.maker_scopes)
        if self.parent is not None:
            bound = self.parent.granted
            scopes = tuple(scope for scope in scopes if scope in bound)
        return scopes

    @property
    def generation(self) -> int:
        """1 for a key that no key made."""
        return 1 if self.parent is None else self.parent.generation + 1


@dataclass(frozen=True, slots=True)
class Revoked:
    """A key that is revoked now, and the digests of all that ended with it."""

    record: KeyRecord
    digests: tuple[str, ...]


def is_name(text: str) -> bool:
    """Whether `text` may name an organization or a project."""
    return _NAME.fullmatch(text) is not None


class RedisKeyStore:
    """Keys as hashes; every change is published in its own transaction."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def fetch_key(self, digest: str) -> KeyRecord | None:
        """The key of this SHA-256, or None. Two reads, since the organization is not known before the key is.

        Raises:
            StoreUnavailable: the store does not answer in time.
        """
        async with answering():
            return await self._read_key(digest)

    async def create_key(self, digest: str, record: KeyRecord, *, create_missing: bool = False) -> None:
        """Store a key, with its organization and project where `create_missing`.

        Raises:
            UnknownRecord: the organization or the project does not exist.
        """
        if not create_missing:
            await self._require(record.org, record.project)
        async with self._redis.pipeline(transaction=True) as changes:
            changes.sadd(names.ORGS, record.org)
            changes.hsetnx(names.org(record.org), "status", "active")
            changes.hsetnx(names.org(record.org), "created_at", str(record.created_at_s))
            changes.sadd(names.org_projects(record.org), record.project)
            changes.hset(names.key(digest), mapping=_to_hash(record))
            changes.sadd(names.org_keys(record.org), digest)
            changes.set(names.key_id(record.id), digest)
            if record.parent_digest is not None:
                changes.sadd(names.key_children(record.parent_digest), digest)
            changes.publish(names.INVALIDATIONS, digest)  # it may be cached as unknown
            await changes.execute()

    async def make_room(self, org: str, now_s: float) -> bool:
        """See that an organization can have another key: some of the oldest dead ones are forgotten if it is full.

        What was forgotten is unknown, and so as dead as before. False if every key of a full organization is alive.
        """
        counted: Any = await self._redis.scard(names.org_keys(org))
        if int(counted) < MAX_KEYS:
            return True
        stored = await self._read_org_keys(org)
        dead = [(digest, record) for digest, record in stored.items() if record.is_over(now_s)]
        dead.sort(key=lambda each: each[1].created_at_s)
        async with self._redis.pipeline(transaction=True) as changes:
            for digest, record in dead[:_FORGOTTEN_AT_ONCE]:
                changes.delete(names.key(digest), names.key_children(digest), names.key_id(record.id))
                changes.srem(names.org_keys(org), digest)
            await changes.execute()
        return bool(dead)

    async def list_keys(self, org: str | None = None) -> list[KeyRecord]:
        """The keys of an organization, or of all, oldest first; how their makers stand is not looked up."""
        orgs = [org] if org is not None else sorted(await read_set(self._redis, names.ORGS))
        found = [record for each in orgs for record in (await self._read_org_keys(each)).values()]
        return sorted(found, key=lambda record: (record.created_at_s, record.id))

    async def revoke_key(self, key_id: str, org: str | None = None) -> Revoked:
        """Revoke for good, and tell every edge in the same step. A second time changes and tells nothing.

        Raises:
            UnknownRecord: there is no key of this id, or none in `org`.
        """
        digest = await self._redis.get(names.key_id(key_id))
        stored = {} if digest is None else await read_hash(self._redis, names.key(str(digest)))
        if digest is None or not stored or org not in (None, stored["org"]):
            raise UnknownRecord(f"there is no key {key_id}")
        script = self._redis.register_script(_REVOKE)
        ended: Any = await script(
            keys=[names.key(str(digest))], args=[str(digest), names.INVALIDATIONS, names.KEY_PREFIX]
        )
        return Revoked(_from_hash({**stored, "status": "revoked"}), tuple(map(str, ended)))

    async def set_organization_status(self, org: str, status: str) -> None:
        """Make an organization `active` or `suspended`; every edge forgets all that it cached.

        Raises:
            UnknownRecord: there is no such organization.
        """
        if not await self._redis.exists(names.org(org)):
            raise UnknownRecord(f"there is no organization {org}")
        async with self._redis.pipeline(transaction=True) as changes:
            changes.hset(names.org(org), "status", status)
            changes.publish(names.INVALIDATIONS, names.EVERYTHING)
            await changes.execute()

    async def _require(self, org: str, project: str) -> None:
        if not await self._redis.exists(names.org(org)):
            raise UnknownRecord(f"there is no organization {org}")
        if project not in await read_set(self._redis, names.org_projects(org)):
            raise UnknownRecord(f"organization {org} has no project {project}")

    async def _read_org_keys(self, org: str) -> dict[str, KeyRecord]:
        """By their digests, without how their makers stand."""
        digests = sorted(await read_set(self._redis, names.org_keys(org)))
        async with self._redis.pipeline(transaction=False) as reads:
            for digest in digests:
                reads.hgetall(names.key(digest))
            found = await reads.execute()
        return {digest: _from_hash(stored) for digest, stored in zip(digests, found, strict=True) if stored}

    async def _read_key(self, digest: str, generations: int = MAX_GENERATIONS) -> KeyRecord | None:
        if not generations or not (stored := await read_hash(self._redis, names.key(digest))):
            return None
        made_by, parent_digest = stored.get("made_by"), stored.get("parent")
        async with self._redis.pipeline(transaction=False) as reads:
            reads.hgetall(names.org(stored["org"]))
            if made_by:
                reads.hget(names.user(made_by), "status")
                reads.hget(names.user_orgs(made_by), stored["org"])
            organization, *maker = await reads.execute()
        return _from_hash(
            stored,
            org_is_active=organization.get("status") == "active",
            org_limits=read_limits(organization),
            maker_scopes=None if not maker else ROLES.get(maker[1], ()) if maker[0] == "active" else (),
            parent=await self._read_key(parent_digest, generations - 1) if parent_digest else None,
        )


def _to_hash(record: KeyRecord) -> dict[Any, Any]:
    cap = record.spend_cap
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
        "cap_nano_usd": "" if cap is None else str(cap.nano_usd),
        "cap_period": "" if cap is None else cap.period,
        "made_by": record.made_by or "",
        "parent": record.parent_digest or "",
    }


def _from_hash(stored: Mapping[str, str], **standing: Any) -> KeyRecord:
    """Keys that older versions wrote have no cap and no maker."""
    cap = stored.get("cap_nano_usd")
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
        spend_cap=SpendCap(int(cap), stored["cap_period"]) if cap else None,
        made_by=stored.get("made_by") or None,
        parent_digest=stored.get("parent") or None,
        **standing,
    )
