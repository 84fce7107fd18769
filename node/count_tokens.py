"""`POST /v1/infer/v1/messages/count_tokens`: the same render as for an answer, and nothing after it."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from node.engine.supervisor import Supervisor
from node.receive import Receiver
from node.wire.parse import parse_count
from shared.web import CONTEXT, json_response


@dataclass(frozen=True, slots=True)
class CountTokensHandler:
    """Answers one route of one node."""

    receiver: Receiver
    supervisor: Supervisor

    async def __call__(self, request: web.Request) -> web.Response:
        """The count equals `usage.input_tokens` of the same request, since the code is the same."""
        context = request[CONTEXT]
        received = await self.receiver.receive(request, parse_count)
        ticket, engine = await self.receiver.admit(received, self.supervisor.engine, context, is_count=True)
        async with ticket:
            rendered = await self.receiver.render(engine, received.message, ticket, context)
        return json_response({"input_tokens": rendered.prompt_tokens})
