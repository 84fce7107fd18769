"""The port of admission and billing: what is asked, and every outcome as a type.

Decides the vocabulary. Must not know Redis or HTTP. A failing store is an outcome (`Unavailable`), so that every
caller says what it does then: admission fails closed, a settlement waits in the spool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from node.limits.prices import Price
from shared.request_log import RequestRecord

Period = Literal["day", "month", "total"]
LimitName = Literal["requests_per_minute", "tokens_per_minute", "image_bytes_per_minute"]


@dataclass(frozen=True, slots=True)
class Limits:
    """An organization's limits; None is unlimited. Those per minute count for each model on its own."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    image_bytes_per_minute: int | None = None
    concurrent_requests: int | None = None


@dataclass(frozen=True, slots=True)
class SpendCap:
    """The most that a key may cost in a period of UTC."""

    nano_usd: int
    period: Period


@dataclass(frozen=True, slots=True)
class Subject:
    """Who asks for what, under which rules; fixed for the life of a request."""

    request_id: str
    org: str
    project: str
    key_id: str
    model: str
    node: str
    price: Price
    limits: Limits
    cap: SpendCap | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What is reserved beside the one request: the worst case."""

    tokens: int = 0
    cost_nano_usd: int = 0
    image_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """A reservation, as its owner remembers it.

    Attributes:
        admitted_ms: by the store's clock. Month and day of a request are those in which it was admitted.
        owner: of the attempt that holds it. Where an edge sent a request to a second node because the first one broke
            before its answer, the second is the owner, and the first has nothing to settle any more.
    """

    subject: Subject
    admitted_ms: int
    owner: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a generation came.

    Attributes:
        has_prefilled: whether the prompt was computed; before that nothing is billed.
    """

    has_prefilled: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Settlement:
    """A bill, complete: whoever holds it can book it, at any time.

    Attributes:
        is_last_word: from the request's own node, which knows the last token. A sweeper's is not, and gives way.
        is_certain: whether it was let in. Else nobody heard the store's answer: where it has no reservation there is
            nothing to book, and an admission that comes late is to be refused.
        metered_tokens: what the meter keeps, billed or not; None is what is billed.
        record: its entry in the request log, counts and cost of the bill included.
    """

    hold: Hold
    record: RequestRecord
    is_last_word: bool = True
    is_certain: bool = True
    metered_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """Let in.

    Attributes:
        limit, remaining, reset_s: the requests meter, for `RateLimit-*`; None without such a limit. `reset_s` is when
            the oldest of what is counted leaves.
    """

    hold: Hold
    limit: int | None = None
    remaining: int | None = None
    reset_s: int | None = None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The store was asked, and its answer did not come: it may have let the request in.

    Attributes:
        hold: as the store has it then, so that it can be ended.
    """

    hold: Hold


@dataclass(frozen=True, slots=True)
class Adjusted:
    """The reservation is what was asked for."""


@dataclass(frozen=True, slots=True)
class Charged:
    """The bytes are booked."""


@dataclass(frozen=True, slots=True)
class RateLimited:
    """Too much in this minute. The same need fits after `retry_after_s` whole seconds, if nobody else came.

    Attributes:
        reset_s: the same, for `RateLimit-Reset`.
    """

    name: LimitName
    limit: int
    remaining: int
    retry_after_s: int
    reset_s: int


@dataclass(frozen=True, slots=True)
class ConcurrencyLimited:
    """As many requests in flight as are allowed. Nobody knows when one ends, so the wait is the shortest there is."""

    limit: int
    running: int
    retry_after_s: int = 1


@dataclass(frozen=True, slots=True)
class CapReached:
    """The reserved cost would pass the key's cap."""

    cap: SpendCap
    used_nano_usd: int
    cost_nano_usd: int


@dataclass(frozen=True, slots=True)
class NeverFits:
    """More than the whole limit: waiting changes nothing."""

    name: LimitName | Literal["concurrent_requests"]
    limit: int
    needed: int


@dataclass(frozen=True, slots=True)
class AlreadySettled:
    """This request was billed before."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The store has no such reservation: it lost data, or was restored from an older copy."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease runs again."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Booked, once.

    Attributes:
        was_known: false where the store had no reservation.
    """

    was_known: bool = True


@dataclass(frozen=True, slots=True)
class Amended:
    """This one was booked in the place of another, which was reversed: a sweeper's who took the owner for dead, or
    that of an earlier attempt, whose answer nobody heard."""


@dataclass(frozen=True, slots=True)
class StillAlive:
    """The lease runs, so a sweeper has nothing to settle."""


@dataclass(frozen=True, slots=True)
class TooOld:
    """Older than what is remembered of bills: to book it might be to book it twice. An operator decides."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The store does not answer."""


Refusal = RateLimited | ConcurrencyLimited | CapReached | NeverFits | AlreadySettled | Unavailable
Admission = Admitted | Unanswered | Refusal
Adjustment = Adjusted | RateLimited | CapReached | NeverFits | AlreadySettled | Lost | Unavailable
Charge = Charged | RateLimited | NeverFits | Unavailable
Renewal = Renewed | AlreadySettled | Unavailable
Booking = Settled | Amended | AlreadySettled | StillAlive | TooOld | Unavailable


class Limiter(Protocol):
    """One set of limits and one set of books, shared by all nodes. Every call may be repeated without harm."""

    async def admit(self, subject: Subject, needs: Needs, attempt: int = 1) -> Admission:
        """Reserve everything that a request may need, or nothing.

        Args:
            attempt: the how many-th node this is that was asked, 1 to 9. An earlier one that comes to itself late is
                told that it is settled: it must not take the reservation from one that was asked after it.
        """

    async def adjust(self, hold: Hold, needs: Needs) -> Adjustment:
        """Make tokens and cost of a reservation what is needed now; a refusal changes nothing."""

    async def charge_images(self, hold: Hold, total_bytes: int) -> Charge:
        """Book remote image bytes as they arrive; `total_bytes` is the request's sum so far, failures included.

        A refusal books what the window still holds, since the bytes did arrive.
        """

    async def renew(self, hold: Hold, progress: Progress) -> Renewal:
        """Prolong the lease, and remember the counts in case this was the last renewal."""

    async def settle(self, settlement: Settlement) -> Booking:
        """Book the bill and end the reservation, exactly once."""

    async def release(self, hold: Hold) -> None:
        """Undo an admission with which nothing was begun, if the store answers; else its lease ends by itself."""

    async def log_refusal(self, org: str, record: RequestRecord) -> None:
        """Keep a refused request in the log, if the store answers."""
