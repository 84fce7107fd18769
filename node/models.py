"""What this node serves, in the list shapes of OpenAI's and of Anthropic's SDKs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from node.engine.supervisor import Supervisor
from node.gate import Gate
from node.receive import Receiver
from shared.errors import INVALID_REQUEST, ApiError
from shared.web import json_response

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ModelsHandler:
    """Answers the lists of one node; none of them waits for the engine.

    Attributes:
        created_s: when this node began to serve (Unix seconds).
    """

    receiver: Receiver
    gate: Gate
    supervisor: Supervisor
    created_s: int

    async def openai_list(self, request: web.Request) -> web.Response:
        """`GET /v1/infer/models`."""
        self.gate.admit(request)
        return json_response({"object": "list", "data": [self._openai_entry()]})

    async def openai_one(self, request: web.Request) -> web.Response:
        """`GET /v1/infer/models/{id}`."""
        self.gate.admit(request)
        self.receiver.check_model(request.match_info["id"])
        return json_response(self._openai_entry())

    async def anthropic_list(self, request: web.Request) -> web.Response:
        """`GET /v1/infer/v1/models`, with Anthropic's paging (`limit`, `after_id`, `before_id`)."""
        self.gate.admit(request)
        _check_limit(request.query.get("limit"))
        names = ("after_id", "before_id")
        is_past = any(request.query.get(name) == self.receiver.model.served_id for name in names)
        page = [] if is_past else [self._anthropic_entry()]
        ends = page[0]["id"] if page else None
        return json_response({"data": page, "has_more": False, "first_id": ends, "last_id": ends})

    async def anthropic_one(self, request: web.Request) -> web.Response:
        """`GET /v1/infer/v1/models/{id}`."""
        self.gate.admit(request)
        self.receiver.check_model(request.match_info["id"])
        return json_response(self._anthropic_entry())

    def _openai_entry(self) -> dict[str, Any]:
        model = self.receiver.model
        return {
            "id": model.served_id,
            "object": "model",
            "created": self.created_s,
            "owned_by": "b3os",
            "display_name": model.display_name,
            "context_window": self._context_tokens(),
            "max_output_tokens": self._max_output_tokens(),
            "input_modalities": ["text", "image"] if self.supervisor.takes_images else ["text"],
            "output_modalities": ["text"],
        }

    def _anthropic_entry(self) -> dict[str, Any]:
        model = self.receiver.model
        return {
            "type": "model",
            "id": model.served_id,
            "display_name": model.display_name,
            "created_at": datetime.fromtimestamp(self.created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "max_input_tokens": self._max_output_tokens(),
            "max_tokens": self._max_output_tokens(),
        }

    def _context_tokens(self) -> int | None:
        """The window; None while the model's own is not known yet."""
        return self.supervisor.context_tokens or self.receiver.model.context_tokens

    def _max_output_tokens(self) -> int | None:
        """Prompt and answer share the window, and each has at least one token of it."""
        window = self._context_tokens()
        return None if window is None else window - 1


def _check_limit(text: str | None) -> None:
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= MAX_PAGE):
        raise ApiError(INVALID_REQUEST, f"limit: must be a number from 1 to {MAX_PAGE}", param="limit")
