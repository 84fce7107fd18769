"""A key as it is stored, and what may be done with it now.

Decides how a key is written as a hash, and that it grants no more and lives no longer than what it hangs on. Pure.
Must not know where it lies, nor who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
        password_version: of a CLI token, that of its user when he let the program in: another password ends it.
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
    password_version: int | None = None
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
    def ends_at_s(self) -> int | None:
        """When its own expiry, or that of a key on which it hangs, ends it; None for never."""
        ends = (self.expires_at_s, None if self.parent is None else self.parent.ends_at_s)
        return min((end for end in ends if end is not None), default=None)

    @property
    def generation(self) -> int:
        """1 for a key that no key made."""
        return 1 if self.parent is None else self.parent.generation + 1


def cursor_of(record: KeyRecord) -> str:
    """Where it stands among the keys of its organization, by time."""
    return f"{record.created_at_s:012}-{record.id}"


def to_hash(record: KeyRecord) -> dict[str, str]:
    """What is written down: nothing of those on whom it depends."""
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
        "password_version": "" if record.password_version is None else str(record.password_version),
        "parent": record.parent_digest or "",
    }


def from_hash(stored: Mapping[str, str], **standing: Any) -> KeyRecord:
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
        password_version=int(stored["password_version"]) if stored.get("password_version") else None,
        parent_digest=stored.get("parent") or None,
        **standing,
    )
