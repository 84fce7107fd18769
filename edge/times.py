"""How a time is written for people and programs."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(at_s: int) -> str:
    """Unix seconds as RFC 3339."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_ms(at_ms: int) -> str:
    """Unix milliseconds as RFC 3339, with all three digits of theirs."""
    at_s, rest_ms = divmod(at_ms, 1000)
    return f"{iso(at_s).removesuffix('Z')}.{rest_ms:03}Z"
