"""A meter of image bytes for tests that are about something else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unmetered:
    """Nothing is paid for."""

    payer: str = ""

    async def charge(self, count: int) -> None:
        """Note nothing."""

    async def charge_rest(self) -> None:
        """Book nothing."""
