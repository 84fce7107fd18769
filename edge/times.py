"""How a time is written for people and programs."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(at_s: int) -> str:
    """Unix seconds as RFC 3339."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
