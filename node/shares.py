"""Places that callers share: who holds fewest is next, and nobody holds all of them.

Decides whose turn it is where many want the same few workers. Must not know what a place is for.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Shares:
    """A semaphore that knows for whom.

    Args:
        places: how many there are. most_of_one: how many one caller may hold, so that a place is left for the next.
    """

    def __init__(self, places: int, most_of_one: int) -> None:
        self._free = places
        self._most_of_one = most_of_one
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._served: dict[str, int] = {}  # when each of those that hold or wait was last given a place
        self._count = 0

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return sum(len(line) for line in self._waiting.values())

    @asynccontextmanager
    async def place(self, who: str) -> AsyncIterator[None]:
        """A place for `who`, as soon as it is his turn."""
        await self.acquire(who)
        try:
            yield
        finally:
            self.release(who)

    async def acquire(self, who: str) -> None:
        """Wait for a place. Whoever has it has to release it."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(who)  # it was given in the moment in which nobody wanted it any more
            elif turn in self._waiting.get(who, ()):
                self._waiting[who].remove(turn)
                self._forget(who)
            raise

    def release(self, who: str) -> None:
        """Give one back."""
        self._free += 1
        self._held[who] -= 1
        self._forget(who)
        self._hand_out()

    def _forget(self, who: str) -> None:
        """What is known of those who neither hold nor wait."""
        if who in self._waiting and not self._waiting[who]:
            del self._waiting[who]
        if not self._held[who]:
            del self._held[who]
            if who not in self._waiting:
                self._served.pop(who, None)

    def _hand_out(self) -> None:
        while self._free and (who := self._next()) is not None:
            turn = self._waiting[who].popleft()
            if not turn.done():  # else it was cancelled, and its waiter doesn't know yet
                turn.set_result(None)
                self._free -= 1
                self._held[who] += 1
                self._count += 1
                self._served[who] = self._count
            self._forget(who)

    def _next(self) -> str | None:
        """Of those who hold fewest, who was served longest ago."""
        able = (who for who in self._waiting if self._held[who] < self._most_of_one)
        return min(able, key=lambda who: (self._held[who], self._served.get(who, 0)), default=None)
