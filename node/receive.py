"""What every route that takes a message does first, and how a message is rendered.

Decides the order: token, media type, size, sense, model, engine, limits. Must not know what is done with a message
afterwards.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import NoReturn

from aiohttp import web

from node.admission import Admission, Order, Ticket
from node.catalog.served import ServedModel
from node.engine.port import Engine, Rendered
from node.forward import ServedElsewhere
from node.gate import Gate
from node.images.intake import ImageIntake
from node.limits.limiter import Subject
from node.models import not_available
from node.peers import Peers
from node.translate.prompt import PromptBuilder
from node.wire.ignored import list_ignored
from node.wire.request import MessagesRequest
from shared.errors import BODY_TOO_LARGE, NOT_JSON, UNSUPPORTED_PARAMETER, ApiError
from shared.hop import FORWARDED
from shared.web import CONTEXT, RequestContext, read_body

_builder_for = functools.lru_cache(maxsize=4)(PromptBuilder)  # one per engine; it compiles a pattern


@dataclass(frozen=True, slots=True)
class Received:
    """A message that makes sense, and who sent it."""

    subject: Subject
    message: MessagesRequest
    body_bytes: int


@dataclass(frozen=True, slots=True)
class Receiver:
    """Takes messages for one model."""

    model: ServedModel
    gate: Gate
    admission: Admission
    images: ImageIntake
    peers: Peers

    async def receive(self, request: web.Request, parse: Callable[[bytes], MessagesRequest]) -> Received:
        """Who asks, and what; `x-b3os-ignored` is set for whatever the answer will be.

        Raises:
            ApiError: whatever is wrong with the request.
            ServedElsewhere: nothing is, and it is another node's.
        """
        context = request[CONTEXT]
        token = self.gate.admit(request)
        subject = self.admission.subject_of(token.caller, context)
        with self.admission.noting(subject, context):
            if request.content_type != "application/json":
                raise ApiError(NOT_JSON, "send the body as Content-Type: application/json")
            body = await read_body(request, self.model.max_request_bytes, self._too_large)
            with context.phases.measure("parse"):
                message = parse(body)
                if ignored := list_ignored(message):
                    context.headers["x-b3os-ignored"] = ", ".join(ignored)
            if message.model != self.model.served_id:
                self._refer(message.model, request, token.audience, body)
        return Received(subject, message, len(body))

    def _refer(self, named: str, request: web.Request, audience: Collection[str], body: bytes) -> NoReturn:
        """A model that is not served here is a peer's, or nobody's."""
        peer = None if FORWARDED in request.headers else self.peers.find(named, audience)
        if peer is None:
            raise not_available(named)
        raise ServedElsewhere(peer, body)

    async def admit(
        self, received: Received, engine: Callable[[], Engine], context: RequestContext, *, is_count: bool = False
    ) -> tuple[Ticket, Engine]:
        """The engine that will answer, and the ticket under which it does: to be entered at once.

        Raises:
            ApiError: there is no engine, or a limit stands against it.
        """
        with self.admission.noting(received.subject, context):
            answering = engine()
            order = Order.of(received.message, received.body_bytes, answering.context_tokens, is_count=is_count)
            return await self.admission.open(received.subject, context, order), answering

    async def render(
        self, engine: Engine, message: MessagesRequest, ticket: Ticket, context: RequestContext
    ) -> Rendered:
        """The prompt as token ids; organizations don't share a prefix cache, since its timing would tell.

        Raises:
            ApiError: an image is none or isn't fetched, the prompt is too long, or the template refuses it.
        """
        if message.tools and not engine.takes_tools:
            raise ApiError(UNSUPPORTED_PARAMETER, "tools: this model calls no tools", param="tools")
        async with AsyncExitStack() as held:
            with context.phases.measure("images"):
                taken = self.images.taken(message, max_side_px=engine.max_image_side_px, meter=ticket)
                images = await held.enter_async_context(taken)
            with context.phases.measure("render"):
                salt = hashlib.sha256(ticket.payer.encode()).hexdigest()
                build = _builder_for(engine.special_tokens).build_prompt
                prompt = await asyncio.to_thread(build, message, images, cache_salt=salt)  # 10 MB take 0.4 s
                return await engine.render(prompt)

    def _too_large(self, size_bytes: int | None) -> ApiError:
        size = "larger" if size_bytes is None else f"{size_bytes} bytes"
        limit = self.model.max_request_bytes
        return ApiError(BODY_TOO_LARGE, f"The body is {size}; {self.model.served_id} takes {limit} bytes at most")
