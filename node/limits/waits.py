"""Who was told to wait for its next request, and comes before that: refused here, and Redis is not asked again.

Decides that only the limit of requests is known beforehand: nothing is ever given back to its meter, so a wait that
was told is exact, and no request needs less than one. Fewer tokens may fit, and a running request may end at any
moment. Must not know who counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from node.limits.limiter import Admission, RateLimited, Subject

MOST_REMEMBERED = 10_000
"""Of organization and model; of more, the one that was noted first is asked for again."""


class Waits:
    """Of one node."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._waits: dict[tuple[str, str], tuple[int | None, float]] = {}

    def note(self, subject: Subject, admission: Admission) -> None:
        """What was just answered. The wait begins now, so whoever waits as told is never too early.

        Of answers that came together each is rounded up, so the one that ends first counts for all.
        """
        if not isinstance(admission, RateLimited) or admission.name != "requests_per_minute":
            return
        key = subject.org, subject.model
        until_s = self._clock_s() + admission.retry_after_s
        if self.refuse(subject) is not None:
            until_s = min(until_s, self._waits[key][1])
        self._waits.pop(key, None)
        self._waits[key] = admission.limit, until_s
        if len(self._waits) > MOST_REMEMBERED:
            del self._waits[next(iter(self._waits))]

    def refuse(self, subject: Subject) -> RateLimited | None:
        """The refusal that is known already, with the seconds that are left; None where Redis is to be asked."""
        limit, until_s = self._waits.get((subject.org, subject.model), (None, 0.0))
        left_s = until_s - self._clock_s()
        if limit is None or limit != subject.limits.requests_per_minute or left_s <= 0:
            return None
        wait_s = math.ceil(left_s)
        return RateLimited("requests_per_minute", limit, 0, wait_s, wait_s)
