"""What the scripts in `node/limits/lua` should do, once more and plainly, for one organization and one model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from node.limits.limiter import (
    Adjusted,
    Adjustment,
    AlreadySettled,
    Amended,
    Booking,
    CapReached,
    Charge,
    Charged,
    ConcurrencyLimited,
    LimitName,
    Limits,
    Lost,
    Needs,
    NeverFits,
    Progress,
    RateLimited,
    Renewal,
    Renewed,
    Settled,
    SpendCap,
    StillAlive,
)

SLOT_MS = 5000
LIVE = 13
LEASE_MS = 30_000
FREE_DONE_MS = 600_000


class Meter:
    """A list of all that counts, each at the slot that it counts in. Nothing is ever deleted."""

    def __init__(self, name: LimitName, limit: int, clock: Callable[[], int]) -> None:
        self.name, self.limit, self._clock = name, limit, clock
        self.sums: Counter[int] = Counter()

    def slot(self) -> int:
        """The one that runs."""
        return self._clock() // SLOT_MS

    def live(self) -> dict[int, int]:
        """What counts now."""
        return {slot: total for slot, total in self.sums.items() if self.slot() - slot < LIVE and total}

    def total(self) -> int:
        """Its sum."""
        return sum(self.live().values())

    def refuse(self, need: int, more: int) -> RateLimited | NeverFits | None:
        """Whether `more`, as a part of `need`, is too much. The wait is found by trying every millisecond's slot."""
        if need > self.limit:
            return NeverFits(self.name, self.limit, need)
        if self.total() + more <= self.limit:
            return None
        wait_ms = 0
        while (
            sum(total for slot, total in self.live().items() if not self._has_left(slot, wait_ms)) + more > self.limit
        ):
            wait_ms += 1000
        return RateLimited(self.name, self.limit, max(0, self.limit - self.total()), wait_ms // 1000, wait_ms // 1000)

    def _has_left(self, slot: int, wait_ms: int) -> bool:
        return (self._clock() + wait_ms) // SLOT_MS - slot >= LIVE

    def add(self, amount: int, slot: int | None = None) -> None:
        """Count it."""
        self.sums[self.slot() if slot is None else slot] += amount

    def refund(self, slot: int, amount: int) -> None:
        """Give back what still counts."""
        if slot in self.live():
            self.sums[slot] -= min(amount, self.sums[slot])


@dataclass(slots=True)
class Kept:
    """A reservation."""

    held: int
    tokens: int
    slot: int | None
    slot_tokens: int
    images: int
    is_counted: bool = True
    attempt: int = 1
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True, slots=True)
class Billed:
    """What was booked, and by which attempt."""

    attempt: int
    at_ms: int
    progress: Progress


@dataclass(slots=True)
class Model:
    """All of it.

    Attributes:
        bars: the last attempt of each request that is over; none up to it is let in.
    """

    clock: Callable[[], int]
    limits: Limits
    cap: SpendCap
    price: Callable[[int, int], int]
    kept: dict[str, Kept] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    done: dict[str, Progress | None] = field(default_factory=dict)
    billed: dict[str, Billed] = field(default_factory=dict)
    bars: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    ledger: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    requests: Meter = field(init=False)
    tokens: Meter = field(init=False)
    images: Meter = field(init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        self.requests = Meter("requests_per_minute", limits.requests_per_minute or 0, self.clock)
        self.tokens = Meter("tokens_per_minute", limits.tokens_per_minute or 0, self.clock)
        self.images = Meter("image_bytes_per_minute", limits.image_bytes_per_minute or 0, self.clock)

    def admit(
        self, request: str, needs: Needs, attempt: int = 1
    ) -> AlreadySettled | ConcurrencyLimited | CapReached | RateLimited | NeverFits | None:
        """None lets it in."""
        if attempt <= self.bars[request]:
            return AlreadySettled()
        if (kept := self.kept.get(request)) is not None:
            return AlreadySettled() if attempt < kept.attempt else None
        if request in self.done and not self._is_of_today(self.billed[request]):
            return AlreadySettled()
        is_new = request not in self.done
        if is_new and (refused := self._refuse(needs)) is not None:
            return refused
        meters = {self.requests: int(is_new), self.tokens: needs.tokens, self.images: needs.image_bytes}
        for meter, need in meters.items():
            meter.add(need)
        slot = self.tokens.slot() if needs.tokens else None
        self.kept[request] = Kept(
            needs.cost_nano_usd, needs.tokens, slot, needs.tokens, needs.image_bytes, is_new, attempt
        )
        self._hold(self.clock(), needs.cost_nano_usd)
        self.leases[request] = self.clock() + LEASE_MS
        return None

    def _refuse(self, needs: Needs) -> ConcurrencyLimited | CapReached | RateLimited | NeverFits | None:
        """By the rules, which look at everything first."""
        running = sum(end >= self.clock() for end in self.leases.values())
        if running >= (self.limits.concurrent_requests or 0):
            return ConcurrencyLimited(self.limits.concurrent_requests or 0, running)
        if (refused := self._capped(self.clock(), needs.cost_nano_usd, needs.cost_nano_usd, 0)) is not None:
            return refused
        meters = {self.requests: 1, self.tokens: needs.tokens, self.images: needs.image_bytes}
        verdicts = [meter.refuse(need, need) for meter, need in meters.items() if need]
        for verdict in verdicts:
            if isinstance(verdict, NeverFits):
                return verdict
        if waits := [verdict for verdict in verdicts if isinstance(verdict, RateLimited)]:
            return max(waits, key=lambda each: each.retry_after_s)
        return None

    def adjust(self, request: str, at_ms: int, needs: Needs) -> Adjustment:
        """Grow under the rules, or shrink."""
        if (kept := self.kept.get(request)) is None:
            return AlreadySettled() if request in self.done else Lost()
        dearer, more = needs.cost_nano_usd - kept.held, needs.tokens - kept.tokens
        if dearer > 0 and (refused := self._capped(at_ms, dearer, needs.cost_nano_usd, kept.held)) is not None:
            return refused
        if more > 0:
            if (verdict := self.tokens.refuse(needs.tokens, more)) is not None:
                return verdict
            is_live = kept.slot is not None and self.tokens.slot() - kept.slot < LIVE
            if kept.slot is not None and is_live:
                self.tokens.refund(kept.slot, kept.slot_tokens)
            kept.slot_tokens = kept.slot_tokens + more if is_live else more
            kept.slot = self.tokens.slot()
            self.tokens.add(kept.slot_tokens)
        elif kept.slot is not None:
            back = min(-more, kept.slot_tokens)
            self.tokens.refund(kept.slot, back)
            kept.slot_tokens -= back
        self._hold(at_ms, dearer)
        kept.held, kept.tokens = needs.cost_nano_usd, needs.tokens
        return Adjusted()

    def charge(self, request: str, total: int) -> Charge:
        """Book what is new of a sum."""
        if (kept := self.kept.get(request)) is None or total <= kept.images:
            return Charged()
        more = total - kept.images
        taken = min(more, max(0, self.images.limit - self.images.total()))
        self.images.add(taken)
        kept.images += taken
        if total > self.images.limit:
            return NeverFits(self.images.name, self.images.limit, total)
        return Charged() if taken == more else self.images.refuse(total, total) or Charged()

    def renew(self, request: str, progress: Progress, attempt: int = 1) -> Renewal:
        """Prolong, and write again what was lost."""
        if request in self.done and request not in self.kept:
            return AlreadySettled()
        self.kept.setdefault(request, Kept(0, 0, None, 0, 0, is_counted=False, attempt=attempt)).progress = progress
        self.leases[request] = self.clock() + LEASE_MS
        return Renewed()

    def settle(self, request: str, at_ms: int, progress: Progress, attempt: int = 1) -> Booking:
        """The owner's bill."""
        is_late = self.clock() - at_ms > FREE_DONE_MS and request not in self.done | self.kept
        is_own = self.done.get(request) is not None and self.billed[request].attempt == attempt
        is_next = request in self.billed and self.billed[request].attempt < attempt
        if request in self.done and not (is_own or is_next):
            return AlreadySettled()
        if is_late and not used(progress):
            return AlreadySettled()
        answer = self._replace(request, at_ms, progress, attempt)
        self.done[request] = None
        return answer

    def _is_of_today(self, billed: Billed) -> bool:
        day_ms = 86_400_000
        return billed.at_ms // day_ms == self.clock() // day_ms

    def _replace(self, request: str, at_ms: int, progress: Progress, attempt: int) -> Booking:
        """Book it, in the place of what was booked before if anything was."""
        billed, is_kept = self.billed.get(request), request in self.kept
        self.bar(request, attempt)
        answer: Booking = Settled(was_known=is_kept)
        if is_kept or billed is None:
            self._release(request, at_ms, progress)
        else:
            self.tokens.add(max(0, used(progress) - used(billed.progress)))
            self.leases.pop(request, None)
        if billed is not None:
            self._book(at_ms, billed.progress, -1)
            answer = Amended()
        self._book(at_ms, progress, 1)
        self.billed[request] = Billed(attempt, at_ms, progress)
        return answer

    def settle_unheard(self, request: str, at_ms: int) -> Booking:
        """The free bill of an owner who heard no answer to its admission."""
        if request in self.kept:
            return self.settle(request, at_ms, Progress())
        self.bar(request, 1)
        return Settled(was_known=False)

    def bar(self, request: str, attempt: int) -> None:
        """This attempt is over, whether it was let in or not."""
        self.bars[request] = max(self.bars[request], attempt)

    def sweep(self, request: str, at_ms: int) -> Booking | None:
        """A sweeper's, for a lease that ended."""
        if request not in self.leases:
            return None
        if self.leases[request] >= self.clock():
            return StillAlive()
        if (kept := self.kept.get(request)) is None:
            del self.leases[request]
            return None
        progress = kept.progress if kept.progress.has_prefilled else Progress()
        answer = self._replace(request, at_ms, progress, kept.attempt)
        self.done[request] = progress
        return answer

    def release(self, request: str, at_ms: int) -> None:
        """As if it had never been let in."""
        self.leases.pop(request, None)
        kept = self.kept.pop(request)
        self._hold(at_ms, -kept.held)
        self.requests.refund(at_ms // SLOT_MS, int(kept.is_counted))
        if kept.slot is not None:
            self.tokens.refund(kept.slot, kept.slot_tokens)

    def lose(self, request: str) -> None:
        """The store loses a reservation; what it held stays held."""
        self.kept.pop(request, None)

    def _release(self, request: str, at_ms: int, progress: Progress) -> Settled:
        self.leases.pop(request, None)
        kept = self.kept.pop(request, None)
        if kept is None:
            slot = at_ms // SLOT_MS
            if self.tokens.slot() - slot < LIVE:
                self.requests.add(1, slot)
                self.tokens.add(used(progress), slot)
            return Settled(was_known=False)
        self._hold(at_ms, -kept.held)
        unused = kept.tokens - used(progress)
        if kept.slot is not None and unused > 0:
            self.tokens.refund(kept.slot, min(unused, kept.slot_tokens))
        elif kept.slot is not None:
            self.tokens.add(-unused)
        return Settled()

    def _capped(self, at_ms: int, more: int, cost: int, own: int) -> CapReached | None:
        month = periods(at_ms)[1]
        spent = self.held[month] + self.settled[month]
        return CapReached(self.cap, spent - own, cost) if spent + more > self.cap.nano_usd else None

    def _hold(self, at_ms: int, amount: int) -> None:
        for period in periods(at_ms):
            self.held[period] += amount

    def _book(self, at_ms: int, progress: Progress, sign: int) -> None:
        cost = sign * self.price(progress.input_tokens, progress.output_tokens)
        for period in periods(at_ms):
            self.settled[period] += cost
        if used(progress):
            self.ledger[periods(at_ms)[1]].append(cost)


def used(progress: Progress) -> int:
    """Tokens."""
    return progress.input_tokens + progress.output_tokens


def periods(at_ms: int) -> tuple[str, str, str]:
    """Day, month, total."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.date().isoformat(), f"{at.year}-{at.month:02}", "total"
