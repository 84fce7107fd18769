"""Room that callers share: who holds least is next, and nobody holds all of it.

Decides whose turn it is where many want the same few workers, or the same memory. Must not know what it is for.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Shares:
    """A semaphore that knows for whom.

    Who is next waits until there is room for all that he wants, and nobody overtakes him: else a small wish after
    the other would keep a large one waiting for ever.

    Args:
        places: how many there are. most_of_one: how many one caller may hold, so that some are left for the next.
    """

    def __init__(self, places: int, most_of_one: int) -> None:
        self._places = self._free = places
        self._most_of_one = most_of_one
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}
        self._served: dict[str, int] = {}  # when each of those that hold or wait was last given a place
        self._count = 0

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return sum(len(line) for line in self._waiting.values())

    @property
    def held(self) -> int:
        """How many places are held now."""
        return self._places - self._free

    @asynccontextmanager
    async def place(self, who: str) -> AsyncIterator[None]:
        """A place for `who`, as soon as it is his turn."""
        await self.acquire(who)
        try:
            yield
        finally:
            self.release(who)

    async def acquire(self, who: str, count: int = 1) -> None:
        """Wait for so many places, given at once. Whoever has them has to release them.

        Raises:
            ValueError: nobody ever gets so many.
        """
        if count > self._most_of_one:
            raise ValueError(f"{count} places, where one caller gets {self._most_of_one} at most")
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append((count, turn))
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(who, count)  # it was given in the moment in which nobody wanted it any more
            else:
                self._hand_out()  # to those whom this one stood before
            raise

    def release(self, who: str, count: int = 1) -> None:
        """Give some back."""
        self._free += count
        self._held[who] -= count
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
        self._drop_quitters()
        while (who := self._next()) is not None:
            count, turn = self._waiting[who][0]
            if count > self._free:
                return
            self._waiting[who].popleft()
            turn.set_result(None)
            self._free -= count
            self._held[who] += count
            self._count += 1
            self._served[who] = self._count
            self._forget(who)

    def _drop_quitters(self) -> None:
        for who, line in list(self._waiting.items()):
            self._waiting[who] = deque((count, turn) for count, turn in line if not turn.done())
            self._forget(who)

    def _next(self) -> str | None:
        """Of those who hold least, who was served longest ago."""
        able = (who for who, line in self._waiting.items() if self._held[who] + line[0][0] <= self._most_of_one)
        return min(able, key=lambda who: (self._held[who], self._served.get(who, 0)), default=None)


class Hold:
    """What one job has of the room: taken at once, given back bit by bit.

    Args:
        who: whose share it is.
    """

    def __init__(self, shares: Shares, who: str) -> None:
        self._shares, self._who = shares, who
        self._count = 0

    async def take(self, count: int, within_s: float) -> None:
        """Wait for so much.

        Raises:
            TimeoutError: it took too long, and nothing is held.
        """
        async with asyncio.timeout(within_s):
            await self._shares.acquire(self._who, count)
            self._count += count

    def give_back(self, count: int) -> None:
        """Some of it."""
        self._count -= count
        self._shares.release(self._who, count)

    def end(self) -> None:
        """All of it."""
        if self._count:
            self.give_back(self._count)
