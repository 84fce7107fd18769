"""Who was refused a moment ago and would be again: refused here, and Redis is not asked.

Decides how long a refusal is known to hold. Nothing is given back to the meter of requests, but for what a node that
stops hands over, so a wait for it is exact or too long by that, and no request needs less than one. Tokens and money
are given back whenever a request ends: for them an answer counts for a second, and for whoever needs as much. Places
of running requests are always asked for. Must not know who counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from node.limits.limiter import Admission, CapReached, Needs, RateLimited, SpendCap, Subject

MOST_REMEMBERED = 10_000
"""Refusals; of more, the one that was noted first is asked for again."""
GIVEN_BACK_S = 1.0
"""For how long a meter of tokens, or a cap, is taken to be as it was."""
Key = tuple[str, str, str]
Known = RateLimited | CapReached


@dataclass(frozen=True, slots=True)
class _Memory:
    """A refusal.

    Attributes:
        rule: the limit, or the cap, that stood against it.
        needed: of what it limits; less may fit.
        until_s: known for so long. fits_s: when what was needed fits.
    """

    refusal: Known
    rule: int | SpendCap
    needed: int
    until_s: float
    fits_s: float


class Waits:
    """Of one node."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._memories: dict[Key, _Memory] = {}

    def note(self, subject: Subject, needs: Needs, admission: Admission) -> None:
        """What was just answered. The wait begins now, so whoever waits as told is never too early.

        Of waits for requests that were told together each is rounded up, so the one that ends first counts for all.
        """
        now_s = self._clock_s()
        match admission:
            case RateLimited(name="requests_per_minute", limit=limit, retry_after_s=wait_s):
                key, fits_s = _requests(subject), now_s + wait_s
                if (known := self._recall(key, limit, 1)) is not None:
                    fits_s = min(fits_s, known.fits_s)
                self._remember(key, _Memory(admission, limit, 1, fits_s, fits_s))
            case RateLimited(name="tokens_per_minute", limit=limit, retry_after_s=wait_s):
                fits_s = now_s + wait_s
                until_s = min(fits_s, now_s + GIVEN_BACK_S)
                self._remember(_tokens(subject), _Memory(admission, limit, needs.tokens, until_s, fits_s))
            case CapReached(cap=cap, cost_nano_usd=cost):
                until_s = now_s + GIVEN_BACK_S
                self._remember(_money(subject), _Memory(admission, cap, cost, until_s, until_s))
            case _:
                pass  # let in, or nothing that is known beforehand

    def refuse(self, subject: Subject, needs: Needs) -> Known | None:
        """The refusal that is known already, with the seconds that are left; None where Redis is to be asked."""
        limits = subject.limits
        if (capped := self._recall(_money(subject), subject.cap, needs.cost_nano_usd)) is not None:
            return _as_of_now(capped, self._clock_s())
        found = (
            self._recall(_requests(subject), limits.requests_per_minute, 1),
            self._recall(_tokens(subject), limits.tokens_per_minute, needs.tokens),
        )
        known = [each for each in found if each is not None]
        return _as_of_now(max(known, key=lambda each: each.fits_s), self._clock_s()) if known else None

    def _recall(self, key: Key, rule: int | SpendCap | None, need: int) -> _Memory | None:
        """What is known of this rule, and stands against this need."""
        memory = self._memories.get(key)
        if memory is None or memory.rule != rule or need < memory.needed or memory.until_s <= self._clock_s():
            return None
        return memory

    def _remember(self, key: Key, memory: _Memory) -> None:
        self._memories.pop(key, None)
        self._memories[key] = memory
        if len(self._memories) > MOST_REMEMBERED:
            del self._memories[next(iter(self._memories))]


def _as_of_now(memory: _Memory, now_s: float) -> Known:
    if isinstance(memory.refusal, CapReached):
        return memory.refusal
    wait_s = max(1, math.ceil(memory.fits_s - now_s))  # the clock went on since it was recalled
    return replace(memory.refusal, retry_after_s=wait_s, reset_s=wait_s)


def _requests(subject: Subject) -> Key:
    return "requests", subject.org, subject.model


def _tokens(subject: Subject) -> Key:
    return "tokens", subject.org, subject.model


def _money(subject: Subject) -> Key:
    return "money", subject.org, subject.key_id
