"""Requests that are under way in a node, and what it has not begun with when it stops: that goes back to the edge.

Decides who goes back. Must not know HTTP or engines. A prompt that is being computed is none of these: its answer may
well come in time, and another node would have to begin anew. Nor is what another node has been given from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from shared.errors import ApiError
from shared.tasks import Interruption


class Place:
    """One request's. Ordered by the moment from which the engine has it."""

    __slots__ = ("interruption", "is_queued")

    def __init__(self) -> None:
        self.interruption = Interruption()
        self.is_queued = False


class Handover:
    """All requests that are under way in a node.

    Attributes:
        is_closed: whether whoever comes now goes back at once.
    """

    def __init__(self, refusal: Callable[[], ApiError]) -> None:
        """`refusal` is what goes back."""
        self._refusal = refusal
        self._waiting: dict[Place, None] = {}
        self._held = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self.is_closed = False

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Around all that is done for a request.

        Raises:
            ApiError: it goes back.
        """
        with self.kept():
            place = Place()
            self._waiting[place] = None
            try:
                yield place
            except asyncio.CancelledError:
                if place.interruption.absorb():
                    raise self._refusal() from None
                raise
            finally:
                self._waiting.pop(place, None)

    @property
    def under_way(self) -> int:
        """How many have not ended."""
        return self._held

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around what never goes back once it has begun.

        Raises:
            ApiError: it comes too late.
        """
        if self.is_closed:
            raise self._refusal()
        self._held += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._held -= 1
            if not self._held:
                self._is_idle.set()

    def note_queued(self, place: Place) -> None:
        """The engine has it, behind those that it has already."""
        place.is_queued = True
        self._waiting[place] = self._waiting.pop(place, None)

    def note_begun(self, place: Place) -> None:
        """Its answer begins: it stays here."""
        self._waiting.pop(place, None)

    def close(self, engine_waits: int) -> None:
        """Send back who has not reached the engine, and the last `engine_waits` that have: it takes them in turn."""
        self.is_closed = True
        queued = [place for place in self._waiting if place.is_queued]
        fresh = [place for place in self._waiting if not place.is_queued]
        for place in (*fresh, *queued[max(0, len(queued) - engine_waits) :]):
            place.interruption.interrupt()

    async def wait_until_idle(self, within_s: float) -> bool:
        """Return when all have ended, or after `within_s` seconds; whether they have."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_idle.wait(), within_s)
        return self._is_idle.is_set()
