"""What all books say of one organization, and that they say the same.

Decides what it means that nothing is lost and nothing is billed twice: ledger, spending, usage and request log are
four accounts of one thing, and each request that took tokens is in each of them once. What was free is counted in the
usage and is in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from redis.asyncio import Redis

from node.limits.names import leases_key, ledger_key, reservation_key
from node.limits.redis_limiter import MOST_FREE
from shared.request_log import RequestLog, RequestRecord
from shared.usage import COUNTED, UsageReader
from tests.e2e.money.client import Call, Tenant
from tests.e2e.money.service import INPUT_NANO_USD, OUTPUT_NANO_USD, WITHIN_S

PIECE = 1000

AMOUNTS = COUNTED[1:]


@dataclass(frozen=True, slots=True)
class Loose:
    """What is not settled yet."""

    leases: int
    reservations: int
    held: int
    spooled: int
    running: int

    @property
    def is_none(self) -> bool:
        return not (self.leases or self.reservations or self.held or self.spooled or self.running)


@dataclass(frozen=True, slots=True)
class Books:
    """All that is settled.

    Attributes:
        entries: the ledger's, in order. usage: sums of the days. settled: by name of the counter.
        records: of the log, by id.
    """

    entries: list[dict[str, str]]
    usage: Counter[str]
    settled: dict[str, int]
    records: dict[str, RequestRecord]

    def bills(self) -> dict[str, Counter[str]]:
        """Net amounts by request. `requests` is how often it is billed."""
        bills: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for entry in self.entries:
            bill = bills[entry["request"]]
            bill["requests"] += -1 if entry["outcome"] == "reversed" else 1
            bill.update({name: int(entry[name]) for name in AMOUNTS})
        return bills

    def outcomes(self, call: Call) -> list[str]:
        """Of the entries of one request, in order."""
        return [entry["outcome"] for entry in self.entries if entry["request"] == call.request_id]

    def output_of(self, call: Call) -> int:
        """Tokens of the answer that are billed."""
        return self.bills()[call.request_id]["output_tokens"]

    def check(self) -> None:
        """The four accounts agree, and each bill is what its tokens cost."""
        bills = self.bills()
        assert all(bill["requests"] == (1 if _has_tokens(bill) else 0) for bill in bills.values()), bills
        for bill in bills.values():
            cost = bill["input_tokens"] * INPUT_NANO_USD + bill["output_tokens"] * OUTPUT_NANO_USD
            assert bill["cost_nano_usd"] == cost
        ledger = Counter({name: sum(bill[name] for bill in bills.values()) for name in COUNTED})
        tokens = ("input_tokens", "output_tokens", "cached_tokens", "cost_nano_usd")
        assert {name: self.usage[name] for name in tokens} == {name: ledger[name] for name in tokens}
        counted = sum(
            record.outcome != "refused" or bills.get(request, Counter())["requests"] > 0
            for request, record in self.records.items()
        )
        assert counted <= self.usage["requests"]
        if len(self.records.keys() - bills.keys()) < MOST_FREE:  # else some free ones are not in the log any more
            assert self.usage["requests"] == counted
            assert self.usage["image_bytes"] == sum(record.image_bytes for record in self.records.values())
        assert set(self.settled.values()) == {ledger["cost_nano_usd"]}, (self.settled, ledger)
        for request, bill in bills.items():
            record = self.records.get(request)
            if record is None and not bill["requests"]:
                continue  # a free one took its place, whose record is among the newest
            assert record is not None, request
            assert {name: getattr(record, name) for name in AMOUNTS} == {name: bill[name] for name in AMOUNTS}
        for request, record in self.records.items():
            assert record.outcome != "running", request
            assert request in bills or not _has_tokens(asdict(record)), request


def _has_tokens(amounts: Mapping[str, int]) -> bool:
    """Whether it is a bill, or free."""
    return any(amounts[name] for name in ("input_tokens", "output_tokens", "cost_nano_usd"))


def _days() -> list[datetime]:
    now = datetime.now(UTC)
    return [now - timedelta(days=1), now]


async def read_loose(tenant: Tenant) -> Loose:
    """Of this organization; what runs or waits in a spool is counted for all."""
    service, org = tenant.service, tenant.org
    spent = await UsageReader(service.redis).fetch_spent(org, tenant.key_id, "total")
    pattern = reservation_key(org, "*")
    return Loose(
        leases=int(await service.redis.zcard(leases_key(org))),
        reservations=len([name async for name in service.redis.scan_iter(pattern, count=1000)]),
        held=spent.held,
        spooled=len(service.spooled()),
        running=await service.running(),
    )


async def read_ledger(redis: Redis, key: str) -> list[dict[str, str]]:
    """In pieces: who reads all at once may have to wait for longer than a client does."""
    entries: list[dict[str, str]] = []
    begin = "-"
    while True:
        piece = cast("list[tuple[str, dict[str, str]]]", await redis.xrange(key, min=begin, count=PIECE))
        entries += [fields for _, fields in piece]
        if len(piece) < PIECE:
            return entries
        begin = f"({piece[-1][0]}"


async def read_books(tenant: Tenant) -> Books:
    """As they are now."""
    redis, org = tenant.service.redis, tenant.org
    days, months = ([f"{day:{form}}" for day in _days()] for form in ("%Y-%m-%d", "%Y-%m"))
    entries = [fields for month in sorted(set(months)) for fields in await read_ledger(redis, ledger_key(org, month))]
    reader = UsageReader(redis)
    usage: Counter[str] = Counter()
    first, last = (day.date() for day in _days())
    for row in await reader.fetch_days(org, first, last):
        usage.update({name: getattr(row, name) for name in COUNTED})
    settled = {}
    for kind, periods in (("days", days), ("months", sorted(set(months))), ("total", ["total"])):
        settled[kind] = sum([(await reader.fetch_spent(org, tenant.key_id, each)).settled for each in periods])
    log, cursor = RequestLog(redis), None
    records: dict[str, RequestRecord] = {}
    while True:
        page = await log.fetch_page(org, cursor=cursor, limit=500)
        records |= {record.id: record for record in page.records}
        if (cursor := page.cursor) is None:
            return Books(entries, usage, settled, records)


async def settled_books(tenant: Tenant, within_s: float = WITHIN_S) -> Books:
    """The books once nothing runs, is held, leased or spooled any more; they agree, and the edge tells the same."""
    begun_s = time.monotonic()
    while not (loose := await read_loose(tenant)).is_none:
        assert time.monotonic() - begun_s < within_s, loose
        await asyncio.sleep(0.1)
    books = await read_books(tenant)
    books.check()
    first, last = (day.date().isoformat() for day in _days())
    told = await tenant.get(f"/v1/usage?from={first}&to={last}")
    assert told["total"] == {name: books.usage[name] for name in COUNTED}
    return books


async def told_output(call: Call) -> int:
    """Tokens that the node of a call has told Redis of; 0 before the first renewal."""
    told = await call.tenant.service.redis.hget(reservation_key(call.tenant.org, call.request_id), "output")
    return int(told or 0)


async def node_of(call: Call) -> str:
    """The id of the node that plays a call."""
    record = await RequestLog(call.tenant.service.redis).fetch(call.tenant.org, call.request_id)
    assert record is not None
    return record.node
