"""What every route that takes a message does first, and how a message is rendered.

Decides the order: token, media type, size, engine, limits; and only then what is in the body, whether that makes
sense, and the model. Must not know what is done with a message afterwards.

To read a body may take a core for a tenth of a second. So nobody's is read before he is let in, and large ones are
read in fair turn.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import web

from node.admission import Admission, Order, Ticket
from node.catalog.served import ServedModel
from node.engine.port import Engine, Rendered
from node.forward import ServedElsewhere
from node.gate import Gate
from node.images.intake import ImageIntake, walk_images
from node.limits.estimate import LEAST, Claim
from node.models import not_available
from node.peers import Peers
from node.slow_work import SlowWork
from node.translate.prompt import PromptBuilder
from node.wire.ignored import list_ignored
from node.wire.request import MessagesRequest
from shared.errors import BODY_TOO_LARGE, NOT_JSON, UNSUPPORTED_PARAMETER, ApiError
from shared.hop import FORWARDED, REPEATED
from shared.model_name import read_model
from shared.web import CONTEXT, RequestContext, read_body

SHORT_BYTES = 8 << 10
"""Bodies that are read on the event loop: the worst of them takes 2 ms, and a thread takes 0.1 ms."""
T = TypeVar("T")
_builder_for = functools.lru_cache(maxsize=4)(PromptBuilder)  # one per engine; it compiles a pattern


@dataclass(slots=True)
class Arrival:
    """A request that was let in.

    Attributes:
        ticket: to be entered at once, around all that is done for the request.
        engine: will answer. body: until it is read. body_bytes: its size.
    """

    ticket: Ticket
    engine: Engine
    context: RequestContext
    body: bytes
    body_bytes: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message that makes sense.

    Attributes:
        ignored: names of fields that have no effect. image_bytes: of base64 in the body.
    """

    message: MessagesRequest
    ignored: list[str]
    image_bytes: int


@dataclass(frozen=True, slots=True)
class Receiver:
    """Takes messages for one model."""

    model: ServedModel
    gate: Gate
    admission: Admission
    images: ImageIntake
    slow: SlowWork
    peers: Peers

    async def admit(self, request: web.Request, engine: Callable[[], Engine], least: Claim = LEAST) -> Arrival:
        """Let a request in before anything is known of its body but the size, and that it needs `least`.

        Raises:
            ApiError: it may not be sent, there is no engine, or a limit stands against it.
            ServedElsewhere: its model is another node's.
        """
        context = request[CONTEXT]
        token = self.gate.admit(request)
        subject = self.admission.subject_of(token.caller, context)
        with self.admission.noting(subject, context):
            if request.content_type != "application/json":
                raise ApiError(NOT_JSON, "send the body as Content-Type: application/json")
            body = await read_body(request, self.model.max_request_bytes, self._too_large)
            await self._refer(body, request, token.audience)  # before anything is reserved: the peer does that
            answering = engine()
            ticket = await self.admission.open(subject, context, least, attempt=_attempt_of(request))
        return Arrival(ticket, answering, context, body, len(body))

    async def read(
        self, arrival: Arrival, parse: Callable[[bytes], MessagesRequest]
    ) -> tuple[MessagesRequest, Order]:
        """What is asked for; `x-b3os-ignored` is set for whatever the answer will be.

        Raises:
            ApiError: it makes no sense, or names another model.
        """
        body, arrival.body = arrival.body, b""
        context = arrival.context
        with context.phases.measure("parse"):
            received = await self.slowly(arrival, functools.partial(read_message, body, parse))
        if received.ignored:
            context.headers["x-b3os-ignored"] = ", ".join(received.ignored)
        message = received.message
        if message.model != self.model.served_id:
            raise not_available(message.model)
        text_bytes = arrival.body_bytes - received.image_bytes
        return message, Order(text_bytes, message.max_tokens, arrival.engine.context_tokens)

    async def slowly(self, arrival: Arrival, work: Callable[[], T]) -> T:
        """What comes of work that may take as long as the body is large."""
        return await self.slow.run(work, arrival.ticket.payer, is_short=arrival.body_bytes <= SHORT_BYTES)

    async def _refer(self, body: bytes, request: web.Request, audience: Collection[str]) -> None:
        """A request for a model that is not served here, and by a peer, is the peer's.

        Raises:
            ServedElsewhere: it is.
        """
        if FORWARDED in request.headers or len(audience) < 2:
            return
        named = read_model(body)
        if named is not None and named != self.model.served_id:
            peer = await self.peers.find(named, audience)
            if peer is not None:
                raise ServedElsewhere(peer, body)

    async def render(self, arrival: Arrival, message: MessagesRequest) -> Rendered:
        """The prompt as token ids; organizations don't share a prefix cache, since its timing would tell.

        Raises:
            ApiError: an image is none or isn't fetched, the prompt is too long, or the template refuses it.
        """
        engine, ticket, phases = arrival.engine, arrival.ticket, arrival.context.phases
        if message.tools and not engine.takes_tools:
            raise ApiError(UNSUPPORTED_PARAMETER, "tools: this model calls no tools", param="tools")
        async with AsyncExitStack() as held:
            with phases.measure("images"):
                taken = self.images.taken(message, max_side_px=engine.max_image_side_px, meter=ticket)
                images = await held.enter_async_context(taken)
            with phases.measure("render"):
                salt = hashlib.sha256(ticket.payer.encode()).hexdigest()
                build = _builder_for(engine.special_tokens).build_prompt
                prompt = await self.slowly(arrival, functools.partial(build, message, images, cache_salt=salt))
                return await engine.render(prompt)

    def _too_large(self, size_bytes: int | None) -> ApiError:
        size = "larger" if size_bytes is None else f"{size_bytes} bytes"
        limit = self.model.max_request_bytes
        return ApiError(BODY_TOO_LARGE, f"The body is {size}; {self.model.served_id} takes {limit} bytes at most")


def read_message(body: bytes, parse: Callable[[bytes], MessagesRequest]) -> Received:
    """All that one look at a body tells.

    Raises:
        ApiError: it makes no sense.
    """
    message = parse(body)
    sources = (block.source for _, block in walk_images(message))
    image_bytes = sum(len(source.data) for source in sources if source.type == "base64")
    return Received(message, list_ignored(message), image_bytes)


def _attempt_of(request: web.Request) -> int:
    """The how many-th node this one is that the edge asked."""
    told = request.headers.get(REPEATED, "")
    return int(told) if told in ("2", "3", "4", "5", "6", "7", "8", "9") else 1
