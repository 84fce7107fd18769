"""A request's way through the limits: let in as one request of the fewest tokens before it is read, the rest of them
reserved once they are counted, after a guess where there is much to count, and paid for when it ends.

Decides what is reserved for which request, and that refused ones are logged. Must not know how limits are counted,
nor how a request is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from node.catalog.served import ServedModel
from node.limits.bill import Ending, build_refused
from node.limits.estimate import Claim, estimated_claim, exact_claim
from node.limits.limiter import Needs, Subject
from node.limits.prices import Price
from node.limits.refusals import RefusalLog
from node.limits.rules import build_subject
from node.limits.settlement import Desk, Reservation
from node.limits.told import build_headers, build_refusal, require_adjusted, require_charged
from shared.errors import ApiError
from shared.node_token import Caller
from shared.web import RequestContext

CHARGE_BYTES = 262_144
"""Bytes of images are charged in such pieces: each is a write that Redis puts on its disk before it answers."""
GUESS_BYTES = 32_768
"""Of text, from which on a guess asks for leave before the prompt is rendered: 10 MB take 0.4 s of a core."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Lets requests in, for one node and its model."""

    node_id: str
    model: ServedModel
    desk: Desk
    refusals: RefusalLog

    def subject_of(self, caller: Caller, context: RequestContext) -> Subject:
        """Who asks, by which rules.

        Raises:
            ValueError: the edge sent a rule that is not known here.
        """
        price = Price(self.model.input_nano_usd_per_token, self.model.output_nano_usd_per_token)
        return build_subject(caller, context.request_id, model=self.model.served_id, node=self.node_id, price=price)

    @contextmanager
    def noting(self, subject: Subject, context: RequestContext) -> Iterator[None]:
        """Log what is refused before it is let in; an admitted request has its entry anyway."""
        try:
            yield
        except ApiError as error:
            phases = {name: round(ms, 2) for name, ms in context.phases.durations_ms.items()}
            total_ms = round(context.phases.elapsed_ms(), 2)
            condition = error.condition
            ending = Ending("refused", condition.status, condition.code, total_ms=total_ms, phases_ms=phases)
            self.refusals.note(subject.org, build_refused(subject, ending))
            raise

    async def open(self, subject: Subject, context: RequestContext, least: Claim, *, attempt: int = 1) -> Ticket:
        """Let in a request of which nothing is known but the least; what comes back is to be entered at once.

        Args:
            attempt: above 1, another node was asked the same before, and may have let it in.

        Raises:
            ApiError: a limit or the key's cap stands against it, or limits can't be checked.
        """
        with context.phases.measure("admission"):
            opened = await self.desk.open(subject, _needs(least, subject), context.phases, attempt=attempt)
        if not isinstance(opened, Reservation):
            raise build_refusal(opened, subject)
        context.headers |= build_headers(opened.admitted)
        return Ticket(opened, subject, context)


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for.

    Attributes:
        text_bytes: of the body without its images. max_tokens: of the answer. window: of the model, in tokens.
    """

    text_bytes: int
    max_tokens: int
    window: int


class Ticket:
    """An admitted request: a context around all that is done for it, and the meter of its images."""

    def __init__(self, reservation: Reservation, subject: Subject, context: RequestContext) -> None:
        self.reservation, self.subject = reservation, subject
        self._context = context
        self._uncharged_bytes = 0

    async def __aenter__(self) -> Ticket:
        await self.reservation.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Settled, whatever happened."""
        await self.reservation.__aexit__(kind, error, traceback)

    @property
    def payer(self) -> str:
        """Whose share of the node's workers it takes."""
        return self.subject.org

    async def charge(self, count: int) -> None:
        """Bytes of a remote image have arrived. Before the first one, a fetch is charged one, which asks for leave.

        Raises:
            ApiError: there were too many in this minute.
        """
        self._uncharged_bytes += count or 1
        if not count or self._uncharged_bytes >= CHARGE_BYTES:
            await self.charge_rest()

    async def charge_rest(self) -> None:
        """Bytes that have arrived and aren't charged yet.

        Raises:
            ApiError: as `charge`.
        """
        count, self._uncharged_bytes = self._uncharged_bytes, 0
        if count:
            with self._telling():
                require_charged(await self.reservation.charge_images(count), self.subject)

    async def guess(self, order: Order) -> None:
        """Reserve what a large prompt of which only the size is known may need.

        Raises:
            ApiError: that is more than there is left.
        """
        if order.text_bytes > GUESS_BYTES:
            limit = self.subject.limits.tokens_per_minute
            await self._adjust(estimated_claim(order.text_bytes, order.max_tokens, order.window, limit))

    async def adjust(self, order: Order, prompt_tokens: int) -> None:
        """Reserve what the rendered prompt needs.

        Raises:
            ApiError: that is more than there is left.
        """
        await self._adjust(exact_claim(prompt_tokens, order.max_tokens, order.window))

    async def _adjust(self, claim: Claim) -> None:
        with self._telling(), self._context.phases.measure("admission"):
            require_adjusted(await self.reservation.adjust(_needs(claim, self.subject)), self.subject)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """The headers of the limit that refused take the place of those of the one that let it in."""
        try:
            yield
        except ApiError as refusal:
            self._context.headers |= refusal.headers
            raise


def _needs(claim: Claim, subject: Subject) -> Needs:
    return Needs(claim.tokens, subject.price.cost_nano_usd(claim.input_tokens, claim.output_tokens))
