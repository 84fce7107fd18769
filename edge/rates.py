"""How often each of many names may ask.

Decides who has to wait and for how long, within a bounded memory. Must not know what is asked, nor who the names are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CAPACITY = 20_000
_SWEPT_EVERY_S = 1.0
_REST = ""
_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one name may: `per_minute` in the long run, `burst` at once after a pause."""

    name: str
    per_minute: float
    burst: float


@dataclass(frozen=True, slots=True)
class TooSoon:
    """Whose allowance is used up, and the whole seconds until it isn't."""

    name: str
    wait_s: int


class Rates:
    """Of each name only the time is kept at which it will have its whole burst again (the GCRA of ATM).

    A name whose time has come is as good as one that was never seen. Only such names are forgotten, so no flood of
    others gives anybody his burst back. Should the memory be full of names that wait, all further ones together count
    as one.
    """

    def __init__(self, clock: Callable[[], float], *, capacity: int = CAPACITY) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._capacity = capacity
        self._whole_at_s: dict[str, float] = {}
        self._sweep_at_s = -math.inf

    def __len__(self) -> int:
        return len(self._whole_at_s)

    def take(self, allowances: Sequence[Allowance]) -> TooSoon | None:
        """Count one request under all names, or under none of them, and tell which one stands against it most."""
        now_s = self._clock()
        refused, longest_s = None, _ROUNDING_S
        taken: dict[str, float] = {}
        for allowance in allowances:
            name = self._slot_of(allowance.name, now_s)
            interval_s = 60 / allowance.per_minute
            whole_at_s = max(now_s, self._whole_at_s.get(name, now_s)) + interval_s
            taken[name] = whole_at_s
            wait_s = whole_at_s - now_s - allowance.burst * interval_s
            if wait_s > longest_s:
                refused, longest_s = TooSoon(allowance.name, math.ceil(wait_s)), wait_s
        if refused is None:
            self._whole_at_s.update(taken)
        return refused

    def _slot_of(self, name: str, now_s: float) -> str:
        if name in self._whole_at_s or len(self._whole_at_s) < self._capacity:
            return name
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + _SWEPT_EVERY_S
            self._whole_at_s = {each: at_s for each, at_s in self._whole_at_s.items() if at_s > now_s}
        return name if len(self._whole_at_s) < self._capacity else _REST
