"""How slowly a request body may come.

Decides by when more of it has to be there. Must not know clocks or HTTP.
"""

from __future__ import annotations

GRACE_S = 30.0
LEAST_BYTES_PER_S = 16_384
TOTAL_S = 600.0


class UploadPace:
    """Time that a sender has: at most `GRACE_S`, of which each byte gives a little back.

    Bytes buy no more than that, so who sends nearly all at once can't keep the last ones back for minutes, and who
    drips is over nearly as soon as who is silent.

    Attributes:
        due_at_s: when it is over, unless more comes before.
    """

    __slots__ = ("_ends_at_s", "due_at_s")

    def __init__(self, begun_s: float) -> None:
        self._ends_at_s = begun_s + TOTAL_S
        self.due_at_s = min(begun_s + GRACE_S, self._ends_at_s)

    def count(self, size_bytes: int, now_s: float) -> None:
        """So much has come."""
        earned_until_s = self.due_at_s + size_bytes / LEAST_BYTES_PER_S
        self.due_at_s = min(earned_until_s, now_s + GRACE_S, self._ends_at_s)
