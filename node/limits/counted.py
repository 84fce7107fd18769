"""Counts what the limits decide and what is billed, for Prometheus.

Decides names and labels. Every label has a fixed set of values: organizations, keys and models are no labels. Must
not decide anything that is counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import assert_never, get_args

from prometheus_client import Counter, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from node.limits.books import Books
from node.limits.breaker import Breaker
from node.limits.limiter import (
    AlreadySettled,
    Amended,
    Booking,
    CapReached,
    ConcurrencyLimited,
    Limiter,
    LimitName,
    Needs,
    NeverFits,
    RateLimited,
    Refusal,
    Settled,
    Settlement,
    StillAlive,
    Subject,
    TooOld,
    Unavailable,
)
from node.limits.refusals import RefusalLog
from node.limits.settlement import Desk, Reservation
from node.limits.spool import Spool
from shared.redis_durability import Durability
from shared.request_log import Outcome, RequestRecord
from shared.timing import Phases

_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_VERDICTS = (
    *("admitted", *get_args(LimitName), "concurrent_requests", "spend_cap"),
    *("never_fits", "already_settled", "unavailable"),
)
_TIMES = ("ttft", "queue", "prefill")
_BOOKINGS = {
    Settled: "settled",
    Amended: "amended",
    AlreadySettled: "already_settled",
    StillAlive: "still_alive",
    TooOld: "too_old",
    Unavailable: "spooled",
}


def name_refusal(refusal: Refusal) -> str:
    """The limit that stood against it, or what else did."""
    match refusal:
        case RateLimited(name=name):
            return name
        case ConcurrencyLimited():
            return "concurrent_requests"
        case CapReached():
            return "spend_cap"
        case NeverFits():
            return "never_fits"
        case AlreadySettled():
            return "already_settled"
        case Unavailable():
            return "unavailable"
        case _:
            assert_never(refusal)


class LimitCounts(Collector):
    """What one node's limits have done."""

    def __init__(self) -> None:
        self._admissions = _counter("b3os_node_admissions", "Requests that asked to be let in.", "outcome", _VERDICTS)
        self._settlements = _counter(
            "b3os_node_settlements", "Bills by how their request ended.", "outcome", get_args(Outcome)
        )
        self._bookings = _counter("b3os_node_bookings", "Bills by their fate.", "booking", _BOOKINGS.values())
        self._tokens = _counter("b3os_node_tokens", "Tokens on bills.", "kind", ("input", "cached_input", "output"))
        self._nano_usd = Counter("b3os_node_billed_nano_usd", "What was billed.", registry=None)
        self._times = {
            name: Histogram(f"b3os_node_{name}_seconds", text, registry=None, buckets=_BUCKETS_S)
            for name, text in (
                ("ttft", "From a request's head to its stream's first token."),
                ("queue", "In the engine's queue."),
                ("prefill", "From there to the first token."),
            )
        }
        self._watched: tuple[Breaker, Spool, RefusalLog, Durability] | None = None

    def watch(self, breaker: Breaker, spool: Spool, refusals: RefusalLog, durability: Durability) -> None:
        """What is looked at when somebody asks."""
        self._watched = breaker, spool, refusals, durability

    def note_admission(self, verdict: Reservation | Refusal) -> None:
        """A request asked to be let in."""
        name = "admitted" if isinstance(verdict, Reservation) else name_refusal(verdict)
        self._admissions.labels(name).inc()

    def note_bill(self, record: RequestRecord, booking: Booking) -> None:
        """A request has ended, and was billed."""
        self._settlements.labels(record.outcome).inc()
        self._bookings.labels(_BOOKINGS[type(booking)]).inc()
        self._tokens.labels("input").inc(record.input_tokens)
        self._tokens.labels("cached_input").inc(record.cached_tokens)
        self._tokens.labels("output").inc(record.output_tokens)
        self._nano_usd.inc(record.cost_nano_usd)
        for name in _TIMES:
            if (ms := record.phases_ms.get(name)) is not None:
                self._times[name].observe(ms / 1000)

    def collect(self) -> Iterator[Metric]:
        """The counts of this moment. It reads the spool's folder, so it is not for the event loop."""
        for metric in (self._admissions, self._settlements, self._bookings, self._tokens, self._nano_usd):
            yield from metric.collect()
        for histogram in self._times.values():
            yield from histogram.collect()
        if self._watched is not None:
            breaker, spool, refusals, durability = self._watched
            yield _gauge("b3os_node_store_away", "Whether Redis is taken to be away.", breaker.is_open)
            yield _gauge("b3os_node_spooled_bills", "Bills on disk that wait for Redis.", len(spool.names()))
            yield _gauge("b3os_node_bills_aside", "Bills that an operator has to look at.", spool.count_aside())
            risks = len(durability.risks)
            yield _gauge("b3os_redis_risks", "Settings of Redis with which it may lose what it acknowledged.", risks)
            noted = CounterMetricFamily("b3os_node_refusals_logged", "Refusals for the request log.", labels=["fate"])
            noted.add_metric(["taken"], refusals.taken)
            noted.add_metric(["left_out"], refusals.left_out)
            yield noted


class CountedDesk(Desk):
    """A desk that counts."""

    def __init__(self, limiter: Limiter, books: Books, counts: LimitCounts) -> None:
        super().__init__(limiter, books)
        self._counts = counts

    async def open(
        self, subject: Subject, needs: Needs, phases: Phases | None = None, *, attempt: int = 1
    ) -> Reservation | Refusal:
        """See `Desk.open`."""
        opened = await super().open(subject, needs, phases, attempt=attempt)
        self._counts.note_admission(opened)
        return opened


class CountedBooks(Books):
    """Books that count."""

    def __init__(
        self, limiter: Limiter, spool: Spool, counts: LimitCounts, *, until_back: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(limiter, spool, until_back=until_back)
        self._counts = counts

    async def book(self, settlement: Settlement) -> Booking:
        """See `Books.book`."""
        booking = await super().book(settlement)
        self._counts.note_bill(settlement.record, booking)
        return booking


def _counter(name: str, text: str, label: str, values: Iterable[str]) -> Counter:
    counter = Counter(name, text, [label], registry=None)
    for value in values:
        counter.labels(value)
    return counter


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
