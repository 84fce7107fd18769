"""`POST /v1/infer/v1/messages/count_tokens`: the same render as for an answer, and nothing after it."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from node.engine.supervisor import Supervisor
from node.limits.estimate import NOTHING
from node.receive import Arrival, Receiver
from node.wire.parse import parse_count
from shared.web import json_response


@dataclass(frozen=True, slots=True)
class CountTokensHandler:
    """Answers one route of one node."""

    receiver: Receiver
    supervisor: Supervisor

    async def __call__(self, request: web.Request) -> web.Response:
        """The count equals `usage.input_tokens` of the same request, since the code is the same."""
        arrival = await self.receiver.admit(request, self.supervisor.engine, NOTHING)
        async with arrival.ticket:
            with self.supervisor.handover.place():
                return await self._answer(arrival)

    async def _answer(self, arrival: Arrival) -> web.Response:
        message, _ = await self.receiver.read(arrival, parse_count)
        rendered = await self.receiver.render(arrival, message)
        return json_response({"input_tokens": rendered.prompt_tokens})
