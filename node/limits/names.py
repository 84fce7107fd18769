"""Redis names of meters, leases, reservations and books; those that the edge reads are in `shared/org_keys.py`.

Decides names, and days and months in UTC. The scripts get every name of theirs from here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from node.limits.limiter import Hold, Period, Subject
from shared.org_keys import (
    org_key,
    record_ids_key,
    record_key,
    refused_ids_key,
    refused_key,
    spend_key,
    usage_key,
)

DAY_MS = 86_400_000
ORGS = "b3os:limits:orgs"
"""A sorted set of the organizations that may have reservations, by the second of their last admission."""
SWEEPER = "b3os:limits:sweeper"
MeterName = Literal["requests", "tokens", "images"]


def period_name(period: Period, at_ms: int) -> str:
    """`2026-11-30`, `2026-11` or `total`."""
    day = datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%d")
    return {"day": day, "month": day[:7], "total": "total"}[period]


def meter_key(subject: Subject, name: MeterName) -> str:
    """A hash of sums by slot."""
    return org_key(subject.org, "meter", name, subject.model)


def leases_key(org: str) -> str:
    """A sorted set of request ids by the end of their leases; an id stays until it is settled."""
    return org_key(org, "leases")


def reservation_key(org: str, request_id: str) -> str:
    """A hash; gone once it is settled."""
    return org_key(org, "reservation", request_id)


def done_key(org: str, request_id: str) -> str:
    """Exists once a request was settled."""
    return org_key(org, "done", request_id)


def ledger_key(org: str, month: str) -> str:
    """A stream of bills."""
    return org_key(org, "ledger", month)


def spend_keys(subject: Subject, at_ms: int) -> list[str]:
    """Day, month, total: all three are counted, so that a cap set today knows the past of its period."""
    periods: tuple[Period, ...] = ("day", "month", "total")
    return [spend_key(subject.org, subject.key_id, period_name(period, at_ms)) for period in periods]


def admit_keys(subject: Subject, at_ms: int) -> list[str]:
    """In the order of `admit.lua`."""
    org, request_id = subject.org, subject.request_id
    return [
        done_key(org, request_id),
        reservation_key(org, request_id),
        leases_key(org),
        *spend_keys(subject, at_ms),
        meter_key(subject, "requests"),
        meter_key(subject, "tokens"),
        meter_key(subject, "images"),
        record_key(org, request_id),
        record_ids_key(org),
    ]


def adjust_keys(hold: Hold) -> list[str]:
    """In the order of `adjust.lua`."""
    subject = hold.subject
    return [
        done_key(subject.org, subject.request_id),
        reservation_key(subject.org, subject.request_id),
        *spend_keys(subject, hold.admitted_ms),
        meter_key(subject, "tokens"),
    ]


def charge_keys(hold: Hold) -> list[str]:
    """In the order of `charge.lua`."""
    subject = hold.subject
    return [reservation_key(subject.org, subject.request_id), meter_key(subject, "images")]


def renew_keys(hold: Hold) -> list[str]:
    """In the order of `renew.lua`."""
    org, request_id = hold.subject.org, hold.subject.request_id
    return [done_key(org, request_id), reservation_key(org, request_id), leases_key(org)]


def settle_keys(hold: Hold) -> list[str]:
    """In the order of `settle.lua`."""
    subject, at_ms = hold.subject, hold.admitted_ms
    org, request_id = subject.org, subject.request_id
    return [
        *renew_keys(hold),
        *spend_keys(subject, at_ms),
        meter_key(subject, "requests"),
        meter_key(subject, "tokens"),
        ledger_key(org, period_name("month", at_ms)),
        usage_key(org, period_name("day", at_ms)),
        record_key(org, request_id),
        record_ids_key(org),
        refused_ids_key(org),
        refused_key(org),
    ]


def refuse_keys(org: str, request_id: str) -> list[str]:
    """In the order of `refuse.lua`."""
    return [record_key(org, request_id), done_key(org, request_id), refused_ids_key(org), refused_key(org)]
