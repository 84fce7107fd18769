"""`GET /v1/infer/models`: what this node serves, in the list shape of OpenAI's SDKs."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from node.catalog.served import ServedModel
from node.gate import Gate
from shared.web import json_response


@dataclass(frozen=True, slots=True)
class ModelsHandler:
    """Answers one route of one node. `created_s` is when this node began to serve (Unix seconds)."""

    model: ServedModel
    gate: Gate
    created_s: int

    async def __call__(self, request: web.Request) -> web.Response:
        """The list; it does not wait for the engine."""
        self.gate.admit(request)
        entry = {"id": self.model.served_id, "object": "model", "created": self.created_s, "owned_by": "b3os"}
        return json_response({"object": "list", "data": [entry]})
