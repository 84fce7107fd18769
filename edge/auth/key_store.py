"""The stored keys, in Redis.

Decides how many there may be, how they are found and listed, and that every change is published with it. Must not
know of caches, headers or HTTP, nor ever see a whole key: callers pass its SHA-256.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from redis.asyncio import Redis

from edge.auth import redis_names as names
from edge.auth.key_record import KeyRecord, cursor_of, from_hash, to_hash
from edge.auth.key_scripts import CREATE, REVOKE
from edge.auth.limits import read_limits
from edge.auth.scopes import ROLES
from edge.auth.store import NoRoom, NotYours, UnknownRecord, answering, read_hash, read_set, run_change, run_script

MAX_GENERATIONS = 3
"""A key may be made with a key that was made with a key, and no further: each one is a read more."""
MAX_KEYS = 1000
"""API keys of one organization, dead ones included: the longest dead make room."""
MAX_TOKENS = 20
"""CLI tokens of one user in all organizations; the oldest goes when there are more."""
CURSOR = re.compile(r"[0-9]{12}-[a-z]{3}_[0-9a-z]{16}")
_READ_AT_ONCE = 200
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Revoked:
    """A key that is revoked now, and the digests of all that ended with it."""

    record: KeyRecord
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Some keys, newest first, and where those before them begin, if there are any."""

    records: tuple[KeyRecord, ...]
    cursor: str | None


def is_name(text: str) -> bool:
    """Whether `text` may name an organization or a project."""
    return _NAME.fullmatch(text) is not None


class RedisKeyStore:
    """Keys as hashes; every change is published in the step that makes it."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def fetch_key(self, digest: str) -> KeyRecord | None:
        """The key of this SHA-256, or None. Two reads, since the organization is not known before the key is.

        Raises:
            StoreUnavailable: the store does not answer in time.
        """
        async with answering():
            return await self._read_key(digest)

    async def create_key(
        self, digest: str, record: KeyRecord, *, create_missing: bool = False, is_bounded: bool = False
    ) -> None:
        """Store a key, with its organization and project where `create_missing`.

        A user's tokens are bounded in any case: what was made longest ago ends. What is forgotten is unknown from
        then on, and so as dead as before.

        Args:
            is_bounded: an API key needs room among `MAX_KEYS`, which dead ones make.

        Raises:
            UnknownRecord: the organization or the project does not exist.
            NoRoom: every key of a full organization is alive.
        """
        await (self._make_place(record) if create_missing else self._require(record.org, record.project))
        is_token = record.kind == "pat"
        most = MAX_TOKENS if is_token else MAX_KEYS if is_bounded else 0
        keys = [
            names.key(digest),
            names.key_id(record.id),
            names.org_key_index(record.org),
            names.user_tokens(str(record.made_by)) if is_token else names.org_key_ends(record.org),
        ]
        is_made = await run_script(
            self._redis,
            CREATE,
            keys,
            digest,
            f"{cursor_of(record)}-{digest}",
            "+inf" if record.ends_at_s is None else record.ends_at_s,
            most,
            "oldest" if is_token else "dead",
            names.INVALIDATIONS,  # it may be cached as unknown
            names.KEY_PREFIX,
            names.KEY_ID_PREFIX,
            names.ORG_PREFIX,
            record.parent_digest or "",
            *(part for pair in to_hash(record).items() for part in pair),
        )
        if not is_made:
            raise NoRoom(f"the organization has {MAX_KEYS} keys, and can have no more")

    async def fetch_page(self, org: str, *, cursor: str | None, limit: int) -> KeyPage:
        """Up to `limit` keys of an organization, newest first; how their makers stand is not looked up.

        Args:
            cursor: that of the page before.
        """
        newest = "+" if cursor is None else f"({cursor}-"
        listed = await self._redis.zrevrangebylex(names.org_key_index(org), newest, "-", start=0, num=limit + 1)
        digests = [str(each).rpartition("-")[2] for each in listed[:limit]]
        async with self._redis.pipeline(transaction=False) as reads:
            for digest in digests:
                reads.hgetall(names.key(digest))
            found = await reads.execute()
        more = str(listed[limit - 1]).rpartition("-")[0] if len(listed) > limit else None
        return KeyPage(tuple(from_hash(stored) for stored in found if stored), more)

    async def list_keys(self, org: str | None = None) -> list[KeyRecord]:
        """The keys of an organization, or of all, oldest first: for operators, who wait."""
        found: list[KeyRecord] = []
        for each in [org] if org is not None else sorted(await read_set(self._redis, names.ORGS)):
            page = await self.fetch_page(each, cursor=None, limit=_READ_AT_ONCE)
            found += page.records
            while page.cursor is not None:
                page = await self.fetch_page(each, cursor=page.cursor, limit=_READ_AT_ONCE)
                found += page.records
        return sorted(found, key=lambda record: (record.created_at_s, record.id))

    async def revoke_key(self, key_id: str, org: str | None = None, by: str | None = None) -> Revoked:
        """Revoke for good, and tell every edge in the same step. A second time changes and tells nothing.

        Args:
            by: the digest of the key that asks, which may end itself and what hangs on it.

        Raises:
            UnknownRecord: there is no key of this id, or none in `org`.
            NotYours: it does not hang on `by`.
        """
        digest = await self._redis.get(names.key_id(key_id))
        stored = {} if digest is None else await read_hash(self._redis, names.key(str(digest)))
        if digest is None or not stored or org not in (None, stored["org"]):
            raise UnknownRecord(f"there is no key {key_id}")
        if by is not None and not await self._hangs_on(by, str(digest), stored):
            raise NotYours(f"{key_id} does not hang on the key that asks")
        prefixes = (names.KEY_PREFIX, names.ORG_PREFIX, names.USER_PREFIX)
        arguments = (str(digest), names.INVALIDATIONS, *prefixes)
        ended = await run_change(self._redis, REVOKE, [names.key(str(digest))], *arguments)
        return Revoked(from_hash({**stored, "status": "revoked"}), tuple(map(str, ended)))

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

    async def _make_place(self, record: KeyRecord) -> None:
        async with self._redis.pipeline(transaction=True) as changes:
            changes.sadd(names.ORGS, record.org)
            changes.hsetnx(names.org(record.org), "status", "active")
            changes.hsetnx(names.org(record.org), "created_at", str(record.created_at_s))
            changes.sadd(names.org_projects(record.org), record.project)
            await changes.execute()

    async def _hangs_on(self, maker: str, digest: str, stored: Mapping[str, str]) -> bool:
        """Whether the key under `digest` is that under `maker`, or was made with it, or with one that was."""
        for _ in range(MAX_GENERATIONS):
            if digest == maker:
                return True
            digest = stored.get("parent", "")
            if not digest:
                return False
            stored = await read_hash(self._redis, names.key(digest))
        return False

    async def _read_key(self, digest: str, generations: int = MAX_GENERATIONS) -> KeyRecord | None:
        if not generations or not (stored := await read_hash(self._redis, names.key(digest))):
            return None
        made_by, parent_digest = stored.get("made_by"), stored.get("parent")
        async with self._redis.pipeline(transaction=False) as reads:
            reads.hgetall(names.org(stored["org"]))
            if made_by:
                reads.hmget(names.user(made_by), ["status", "password_version"])
                reads.hget(names.user_orgs(made_by), stored["org"])
            organization, *maker = await reads.execute()
        is_backed = bool(maker) and maker[0][0] == "active"
        if stored["kind"] == "pat":
            is_backed = is_backed and maker[0][1] == stored.get("password_version")
        return from_hash(
            stored,
            org_is_active=organization.get("status") == "active",
            org_limits=read_limits(organization),
            maker_scopes=None if not maker else ROLES.get(maker[1], ()) if is_backed else (),
            parent=await self._read_key(parent_digest, generations - 1) if parent_digest else None,
        )
