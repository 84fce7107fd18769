"""`POST /v1/infer/v1/messages`: the pipeline from a request's bytes to an answer's.

Decides the order of the steps. Their own decisions are elsewhere: `receive`, `wire`, `translate`, `engine`, `sse`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from node.engine.port import Generation, Piece, Started
from node.engine.supervisor import Supervisor
from node.handover import Place
from node.limits.settlement import Reservation
from node.receive import Arrival, Receiver
from node.sse import PING_AFTER_S, EventStream, event_stream
from node.translate.answer import accumulate
from node.translate.guide import build_guide
from node.translate.inspect import Inspector
from node.translate.sampling import build_sampling
from node.translate.stream import Event, MessageMachine
from node.wire.parse import parse_request
from node.wire.request import MessagesRequest
from shared.errors import ApiError, anthropic_body, internal_error
from shared.ids import new_message_id
from shared.web import RequestContext, json_response

_log = logging.getLogger("b3os.messages")


@dataclass(frozen=True, slots=True)
class MessagesHandler:
    """Answers one route of one node."""

    node_id: str
    receiver: Receiver
    supervisor: Supervisor
    ping_after_s: float = PING_AFTER_S

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Let in, read, render, generate, answer.

        Raises:
            ApiError: anything that goes wrong before the first token.
        """
        arrival = await self.receiver.admit(request, self.supervisor.engine)
        async with arrival.ticket:
            with self.supervisor.handover.place() as place:
                return await self._answer(request, arrival, place)

    async def _answer(self, request: web.Request, arrival: Arrival, place: Place) -> web.StreamResponse:
        context, engine, ticket = arrival.context, arrival.engine, arrival.ticket
        message, order = await self.receiver.read(arrival, parse_request)
        await ticket.guess(order)
        rendered = await self.receiver.render(arrival, message)
        await ticket.adjust(order, rendered.prompt_tokens)
        with context.phases.measure("guide"):
            guide = await self.receiver.slowly(arrival, partial(build_guide, message))
            await engine.check_guide(rendered, guide)
            is_short = not guide.promises()
            inspector = await self.receiver.slow.run(partial(Inspector, guide), ticket.payer, is_short=is_short)
        generation = engine.generate(rendered, guide, build_sampling(message), context.request_id)
        reservation = ticket.reservation
        reservation.follow(generation.usage)
        async with aclosing(generation):
            pieces = aiter(generation)
            self.supervisor.handover.note_queued(place)
            started = await anext(pieces)  # a failure up to here is a plain HTTP error
            self.supervisor.handover.note_begun(place)
            reservation.note_prefilled()
            answer = Answer(self, context, message, generation, inspector, reservation)
            if message.stream:
                return await answer.stream(request, started, pieces)
            return await answer.whole(started, pieces)


class Answer:
    """One answer on its way out, in either form."""

    def __init__(
        self,
        handler: MessagesHandler,
        context: RequestContext,
        message: MessagesRequest,
        generation: Generation,
        inspector: Inspector,
        reservation: Reservation,
    ) -> None:
        self._handler, self._context, self._generation = handler, context, generation
        self._inspector, self._reservation, self._notes = inspector, reservation, reservation.notes
        self._first_ms = 0.0
        self._is_stream = bool(message.stream)
        self._machine = MessageMachine(
            message_id=new_message_id(),
            model=message.model,
            stops=message.stop_sequences or (),
            usage=generation.usage,
            extension=self._extension,
        )

    async def stream(self, request: web.Request, started: Piece, pieces: AsyncIterator[Piece]) -> web.StreamResponse:
        """Head and events; a failure from here on is an `error` event."""
        self._note_first_token(started)
        async with event_stream(request, ping_after_s=self._handler.ping_after_s) as stream:
            self._notes.status = 200
            try:
                async for events in self._events(started, pieces):
                    await stream.send(events)
            except (ConnectionError, TimeoutError):
                raise
            except ApiError as error:
                await self._fail(stream, error)
            except Exception:
                _log.exception("the stream failed")
                await self._fail(stream, internal_error(self._context.request_id))
        return stream.response

    async def _fail(self, stream: EventStream, error: ApiError) -> None:
        event = self._error_event(error)
        await self._reservation.finish()
        await stream.send([event])

    async def whole(self, started: Piece, pieces: AsyncIterator[Piece]) -> web.Response:
        """The same events, accumulated.

        It is settled once there is an answer: what the books say is what the client hears.
        """
        self._note_first_token(started)
        with self._context.phases.measure("model"):
            events = [event async for batch in self._events(started, pieces) for event in batch]
        response = json_response(accumulate(events))
        self._notes.status = 200
        await self._finish()
        return response

    async def _events(self, started: Piece, pieces: AsyncIterator[Piece]) -> AsyncIterator[list[Event]]:
        """Feed the machine until it ended; a generation that a stop sequence ended goes on no further.

        A stream is settled before its last events: whoever has heard the end may ask again at once, and must not be
        refused for what this request still holds.
        """
        yield self._machine.feed(started)
        async for piece in pieces:
            self._inspector.see(piece)
            events = self._machine.feed(piece)
            is_over = self._machine.stop_reason is not None
            if is_over and self._is_stream:
                await self._finish()
            if events:
                yield events
            if is_over:
                return
        raise RuntimeError("the engine's pieces ended without an End")

    def _note_first_token(self, started: Piece) -> None:
        phases = self._context.phases
        self._first_ms = phases.elapsed_ms()
        if isinstance(started, Started) and started.queue_ms is not None and started.prefill_ms is not None:
            phases.add("queue", started.queue_ms)
            phases.add("prefill", started.prefill_ms)
        if self._is_stream:
            phases.add("ttft", self._first_ms)

    async def _finish(self) -> None:
        """The answer is whole: nothing more is computed, and the bill is booked."""
        self._note_end()
        await self._generation.aclose()
        await self._reservation.finish()

    def _note_end(self) -> None:
        usage = self._generation.usage
        self._notes.outcome, self._notes.stop_reason = "finished", self._machine.stop_reason
        self._context.facts |= {
            "model": self._handler.receiver.model.served_id,
            "stop_reason": self._machine.stop_reason,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
        }

    def _extension(self) -> dict[str, Any]:
        """The `b3os` object: who answered, and how long it took from the request head on."""
        total_ms = self._context.phases.elapsed_ms()
        first = ("ttft_ms", self._first_ms) if self._is_stream else ("model_ms", total_ms - self._first_ms)
        return {
            "route": "local",
            "node": self._handler.node_id,
            "timing": {first[0]: round(first[1], 2), "total_ms": round(total_ms, 2)},
            "cached_tokens": self._generation.usage.cached_tokens,
        }

    def _error_event(self, error: ApiError) -> Event:
        self._context.facts["code"] = error.condition.code
        self._notes.outcome, self._notes.error_code = "failed", error.condition.code
        return anthropic_body(error, self._context.request_id)
