"""Whether a node that failed is asked again.

Decides after how many failures a node is left alone and for how long; then one request tries it, and the others wait
for what becomes of that one, or until its client has left it. Must not know what failed, nor who else there is.
"""

from __future__ import annotations

FAILURES = 3
FIRST_OPEN_S = 0.5
LONGEST_OPEN_S = 15.0
PROBE_S = 5.0
"""How long one request has the node for itself; it may be one that takes long, and then another one tries, too."""


class Breaker:
    """Of one node. Times are seconds of one monotonic clock.

    Attributes:
        failures: in a row. shut_until_s: until when nobody asks.
        opened: how often it opened.
    """

    __slots__ = ("_is_tried", "failures", "opened", "shut_until_s")

    def __init__(self) -> None:
        self.failures = 0
        self.opened = 0
        self.shut_until_s = 0.0
        self._is_tried = False

    def lets_through(self, now_s: float) -> bool:
        """Whether the node may be asked now."""
        return now_s >= self.shut_until_s

    @property
    def is_open(self) -> bool:
        """Whether it failed so often that it is left alone, or tried by one request, until it has answered."""
        return self.failures >= FAILURES

    def begin(self, now_s: float) -> float | None:
        """It is asked. After failures this is the one that tries, unless it is asked for want of any other.

        Returns:
            Until when it has the node for itself, if it is the one that tries.
        """
        if not (self.is_open and self.lets_through(now_s)):
            return None
        self.shut_until_s = now_s + PROBE_S
        self._is_tried = True
        return self.shut_until_s

    def abandon(self, until_s: float | None) -> None:
        """Whoever asked left before there was an answer, so the next one tries; `until_s` is what `begin` said."""
        if self._is_tried and until_s == self.shut_until_s:
            self._is_tried = False
            self.shut_until_s = 0.0

    def avoid(self, now_s: float, for_s: float) -> None:
        """It answers, but takes nothing just now."""
        self.shut_until_s = max(self.shut_until_s, now_s + for_s)

    def succeed(self) -> None:
        """It answered."""
        if self.failures:
            self.reset()

    def fail(self, now_s: float) -> None:
        """It was not there, or broke off before it answered.

        One death fails all requests that it had: what comes in while it is left alone tells nothing new.
        """
        if self.is_open and not self.lets_through(now_s) and not self._is_tried:
            return
        self._is_tried = False
        self.failures += 1
        if self.is_open:
            self.opened += self.failures == FAILURES
            open_s = min(FIRST_OPEN_S * 2 ** min(self.failures - FAILURES, 10), LONGEST_OPEN_S)
            self.shut_until_s = now_s + open_s

    def reset(self) -> None:
        """It is there, or another process has taken its place."""
        self.failures = 0
        self.shut_until_s = 0.0
        self._is_tried = False
