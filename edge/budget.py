"""How many bytes of request bodies one edge may hold at once.

Decides who has to come back later, so that a few large uploads can't take the memory that all share. Must not know
what is uploaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import NODE_UNAVAILABLE, ApiError


class Lease:
    """The part of a budget that one request holds."""

    __slots__ = ("_budget", "held_bytes")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.held_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Hold more.

        Raises:
            ApiError: `NODE_UNAVAILABLE`; too much is held already.
        """
        if self._budget.held_bytes + size_bytes > self._budget.limit_bytes:
            raise ApiError(NODE_UNAVAILABLE, "too many large requests at once; retry in 1 second", retry_after_s=1)
        self._budget.held_bytes += size_bytes
        self.held_bytes += size_bytes


class BodyBudget:
    """Counts the bytes that came, and not what heads announce: an announcement costs its sender nothing."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        """Bytes that are given back at the end of the `with`."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            self.held_bytes -= lease.held_bytes
