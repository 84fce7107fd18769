"""The request log: what is kept of a request for 30 days, and how it is read.

Decides the record and the order of a listing. Must not know who writes it. No prompt, no answer, no key: the id of a
key's record is all that tells who asked. The organization is part of every name in Redis, so another organization's
id is unknown here by construction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, cast

import orjson
from redis.asyncio import Redis

from shared.base32 import ALPHABET, encode_base32
from shared.ids import REQUEST_ID
from shared.org_keys import record_ids_key, record_key, refused_ids_key, refused_key

KEEP_S = 30 * 86_400
MOST_READ = 1000
"""Records that one call looks at: a filter that matches little costs no more, and the cursor goes on from there."""
_BATCH = 100

Outcome = Literal["running", "finished", "client_gone", "failed", "refused", "abandoned"]
"""How a request ended, for its bill. `abandoned`: its node died, and it was billed to the last count it told."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request.

    Attributes:
        created_ms: Unix time of its arrival. status: the HTTP status; None while it runs, or where its node died.
        outcome: what it was billed as. cost_nano_usd: what it cost.
        total_ms: from the first byte of the request to the last byte of the answer.
    """

    id: str
    created_ms: int
    key_id: str
    project: str
    model: str
    node: str
    outcome: Outcome
    status: int | None = None
    error_code: str | None = None
    stop_reason: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    image_bytes: int = 0
    cost_nano_usd: int = 0
    price: str | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None
    phases_ms: Mapping[str, float] = field(default_factory=dict)

    def encode(self) -> str:
        """As it is stored."""
        return orjson.dumps(asdict(self)).decode()


_FIELDS = frozenset(each.name for each in fields(RequestRecord))


def decode_record(text: str) -> RequestRecord:
    """What `encode` wrote; fields that a newer version added are left out."""
    stored: dict[str, Any] = orjson.loads(text)
    return RequestRecord(**{name: value for name, value in stored.items() if name in _FIELDS})


def created_ms_of(request_id: str) -> int:
    """The Unix time that a request id begins with."""
    value = 0
    for character in request_id.removeprefix("req_")[:10]:
        value = value * 32 + ALPHABET.index(character)
    return value


def oldest_id(now_ms: int) -> str:
    """What every id that is still kept is greater than."""
    return "req_" + encode_base32(max(0, now_ms - KEEP_S * 1000) << 80, 26)


@dataclass(frozen=True, slots=True)
class LogFilter:
    """What a listing is narrowed to; None takes all. `status` is an HTTP status or an outcome (`429`, `running`)."""

    key_id: str | None = None
    model: str | None = None
    status: str | None = None

    def matches(self, record: RequestRecord) -> bool:
        """Whether it passes."""
        return (
            self.key_id in (None, record.key_id)
            and self.model in (None, record.model)
            and self.status in (None, record.outcome, str(record.status))
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Records, newest first. `cursor` is where the next page begins, None after the last; a page may be empty."""

    records: list[RequestRecord]
    cursor: str | None


class RequestLog:
    """Reads one store. Redis's errors pass: what they mean is the caller's decision."""

    def __init__(self, redis: Redis, wall_clock: Callable[[], float] = time.time) -> None:
        """`wall_clock` gives Unix seconds."""
        self._redis = redis
        self._wall_clock = wall_clock

    async def fetch(self, org: str, request_id: str) -> RequestRecord | None:
        """One record of this organization's, or None."""
        if request_id <= self._oldest_id():  # a refused one may stay longer, while no newer one takes its place
            return None
        found = await self._fetch_all(org, [request_id])
        return found[0] if found else None

    async def fetch_page(
        self, org: str, wanted: LogFilter = LogFilter(), *, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """The newest `limit` records that pass the filter, older than the cursor.

        Raises:
            ValueError: the cursor is none of ours.
        """
        if cursor is not None and REQUEST_ID.fullmatch(cursor) is None:
            raise ValueError("not a cursor")
        found: list[RequestRecord] = []
        read = 0
        while read < MOST_READ:
            ids = await self._older_ids(org, cursor)
            for record in await self._fetch_all(org, ids):
                if wanted.matches(record):
                    found.append(record)
                    if len(found) == limit:
                        return Page(found, record.id)
            if len(ids) < _BATCH:
                return Page(found, None)
            read += len(ids)
            cursor = ids[-1]
        return Page(found, cursor)

    async def _older_ids(self, org: str, cursor: str | None) -> list[str]:
        """A batch of ids below the cursor, of both kinds, newest first."""
        newest = "+" if cursor is None else f"({cursor}"
        oldest = f"({self._oldest_id()}"
        async with self._redis.pipeline(transaction=False) as reads:
            for name in (record_ids_key(org), refused_ids_key(org)):
                reads.zrevrangebylex(name, newest, oldest, 0, _BATCH)
            both = cast("list[list[str]]", await reads.execute())
        return sorted({each for ids in both for each in ids}, reverse=True)[:_BATCH]

    def _oldest_id(self) -> str:
        return oldest_id(int(self._wall_clock() * 1000))

    async def _fetch_all(self, org: str, ids: list[str]) -> list[RequestRecord]:
        """The records that are still there, in this order."""
        if not ids:
            return []
        async with self._redis.pipeline(transaction=False) as reads:
            reads.mget([record_key(org, each) for each in ids])
            reads.hmget(refused_key(org), ids)
            admitted, refused = cast("list[list[str | None]]", await reads.execute())
        texts = [first or second for first, second in zip(admitted, refused, strict=True)]
        return [decode_record(text) for text in texts if text is not None]
