"""Redis names of what an organization's requests leave behind, where edge and node both read it.

Decides the names alone. All of one organization have the hash tag `{org}`, so that a script may touch them together
on a Redis Cluster, and so that no other organization's are ever found by a wrong id.
"""

from __future__ import annotations

import re

_ORG = re.compile(r"[^{}\s]{1,64}")


def org_key(org: str, *parts: str) -> str:
    """A name of this organization's.

    Raises:
        ValueError: the organization's id would break the hash tag.
    """
    if _ORG.fullmatch(org) is None:
        raise ValueError("not an organization id")
    return ":".join((f"b3os:{{{org}}}", *parts))


def record_key(org: str, request_id: str) -> str:
    """One record of the request log, as JSON."""
    return org_key(org, "log", "record", request_id)


def record_ids_key(org: str) -> str:
    """Ids of requests that run or were paid for: a sorted set of equal scores, so in the order of their times."""
    return org_key(org, "log", "ids")


def refused_ids_key(org: str) -> str:
    """Ids of requests that cost nothing, refused ones above all, likewise; a bounded number of them."""
    return org_key(org, "log", "refused-ids")


def refused_key(org: str) -> str:
    """A hash of their records by id."""
    return org_key(org, "log", "refused")


def usage_key(org: str, day: str) -> str:
    """A hash of one UTC day's counters; `shared/usage.py` tells its fields."""
    return org_key(org, "usage", day)


def spend_key(org: str, key_id: str, period: str) -> str:
    """A hash with `held` and `settled` nano-dollars of one key in one period: `2026-11-30`, `2026-11` or `total`."""
    return org_key(org, "spend", key_id, period)
