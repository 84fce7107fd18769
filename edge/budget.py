"""How many bytes of request bodies one edge may hold at once, and how many of them for one organization.

Decides who has to come back later, so that no few large uploads take the memory that all share. Must not know what is
uploaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import NODE_UNAVAILABLE, RATE_LIMITED, ApiError

SMALL_BYTES = 262_144
"""A body up to here is small. Most requests are, those of agents within a session of ordinary length included."""
RESERVED_PART = 8
"""One part in so many is for small bodies alone, so that whoever sends large ones stops nobody else's."""
PARTS_OF_RESERVE = 4
"""One organization holds one part in so many of it."""


class _Room:
    """Bytes that organizations share; none of them holds more than `most_of_one_bytes`."""

    __slots__ = ("_held_by", "_limit_bytes", "_most_of_one_bytes", "held_bytes")

    def __init__(self, limit_bytes: int, most_of_one_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._most_of_one_bytes = most_of_one_bytes
        self._held_by: Counter[str] = Counter()
        self.held_bytes = 0

    def has_share(self, org: str, size_bytes: int) -> bool:
        """Whether so much more would be within the organization's share."""
        return self._held_by[org] + size_bytes <= self._most_of_one_bytes

    def has_space(self, size_bytes: int) -> bool:
        """Whether there is so much left at all."""
        return self.held_bytes + size_bytes <= self._limit_bytes

    def change(self, org: str, size_bytes: int) -> None:
        """Hold more, or less."""
        self.held_bytes += size_bytes
        self._held_by[org] += size_bytes
        if not self._held_by[org]:
            del self._held_by[org]


class Lease:
    """The part of a budget that one request holds."""

    __slots__ = ("_budget", "_org", "_room", "held_bytes")

    def __init__(self, budget: BodyBudget, org: str) -> None:
        self._budget = budget
        self._org = org
        self._room: _Room | None = None
        self.held_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Hold more. Who is refused holds nothing.

        Raises:
            ApiError: `RATE_LIMITED`; the organization holds its share already. `NODE_UNAVAILABLE`; all together do.
        """
        wanted_bytes = self.held_bytes + size_bytes
        self.end()
        room = self._budget.find_room(self._org, wanted_bytes)
        room.change(self._org, wanted_bytes)
        self._room, self.held_bytes = room, wanted_bytes

    def end(self) -> None:
        """Give all of it back."""
        if self._room is not None:
            self._room.change(self._org, -self.held_bytes)
        self._room, self.held_bytes = None, 0


class BodyBudget:
    """Counts the bytes that came, and not what heads announce: an announcement costs its sender nothing.

    Small bodies have a room of their own, and go into the common one when that is full. A body that grows moves.
    """

    def __init__(self, limit_bytes: int, most_of_one_bytes: int) -> None:
        """`most_of_one_bytes` is an organization's share of the common room."""
        reserved_bytes = limit_bytes // RESERVED_PART
        self._reserve = _Room(reserved_bytes, reserved_bytes // PARTS_OF_RESERVE)
        self._common = _Room(limit_bytes - reserved_bytes, most_of_one_bytes)

    @property
    def held_bytes(self) -> int:
        """All that is held now."""
        return self._reserve.held_bytes + self._common.held_bytes

    @contextmanager
    def lease(self, org: str) -> Iterator[Lease]:
        """Bytes of an organization that are given back at the end of the `with`."""
        lease = Lease(self, org)
        try:
            yield lease
        finally:
            lease.end()

    def find_room(self, org: str, size_bytes: int) -> _Room:
        """Where a body of this size goes.

        Raises:
            ApiError: as `Lease.add`.
        """
        rooms = (self._reserve, self._common) if size_bytes <= SMALL_BYTES else (self._common,)
        for room in rooms:
            if room.has_share(org, size_bytes) and room.has_space(size_bytes):
                return room
        if all(room.has_share(org, size_bytes) for room in rooms):
            raise ApiError(NODE_UNAVAILABLE, "too many large requests at once; retry in 1 second", retry_after_s=1)
        words = "your organization uploads as much as it may at once; retry in 1 second"
        raise ApiError(RATE_LIMITED, words, retry_after_s=1)


def largest_common_body_bytes(limit_bytes: int) -> int:
    """The largest body that a budget of this size ever has room for."""
    return limit_bytes - limit_bytes // RESERVED_PART
