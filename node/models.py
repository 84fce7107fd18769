"""What all nodes together serve, in the list shapes of OpenAI's and of Anthropic's SDKs.

Decides the order and the pages of the lists. Must not know how the others are heard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from node.gate import Gate
from node.peers import Peers
from shared.errors import INVALID_REQUEST, MODEL_NOT_AVAILABLE, ApiError
from shared.heartbeat import ModelCard
from shared.web import json_response

MAX_PAGE = 1000
USUAL_PAGE = 20


@dataclass(frozen=True, slots=True)
class ModelsHandler:
    """Answers the lists; none of them waits for an engine or for another node."""

    node_id: str
    card: Callable[[], ModelCard]
    peers: Peers
    gate: Gate

    async def openai_list(self, request: web.Request) -> web.Response:
        """`GET /v1/infer/models`."""
        self.gate.admit(request)
        return json_response({"object": "list", "data": [_openai_entry(card) for card in self._cards()]})

    async def openai_one(self, request: web.Request) -> web.Response:
        """`GET /v1/infer/models/{id}`."""
        self.gate.admit(request)
        return json_response(_openai_entry(self._find(request.match_info["id"])))

    async def anthropic_list(self, request: web.Request) -> web.Response:
        """`GET /v1/infer/v1/models`, with Anthropic's paging (`limit`, `after_id`, `before_id`)."""
        self.gate.admit(request)
        page, has_more = cut_page(self._cards(), request.query)
        data = [_anthropic_entry(card) for card in page]
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return json_response({"data": data, "has_more": has_more, "first_id": first, "last_id": last})

    async def anthropic_one(self, request: web.Request) -> web.Response:
        """`GET /v1/infer/v1/models/{id}`."""
        self.gate.admit(request)
        return json_response(_anthropic_entry(self._find(request.match_info["id"])))

    def _cards(self) -> list[ModelCard]:
        """The same at every node that has heard of the same ones."""
        return merge_cards([(self.node_id, self.card()), *self.peers.cards()])

    def _find(self, named: str) -> ModelCard:
        for card in self._cards():
            if card.id == named:
                return card
        raise not_available(named)


def merge_cards(told: Sequence[tuple[str, ModelCard]]) -> list[ModelCard]:
    """Each model once, by id: as its first node tells of it, served since the earliest of all began."""
    found: dict[str, ModelCard] = {}
    for _, card in sorted(told, key=lambda each: each[0]):
        known = found.setdefault(card.id, card)
        found[card.id] = known.model_copy(update={"created_s": min(known.created_s, card.created_s)})
    return [found[model] for model in sorted(found)]


def cut_page(cards: list[ModelCard], query: Mapping[str, str]) -> tuple[list[ModelCard], bool]:
    """A page, and whether there is more in its direction. An id that is not there begins where it would stand.

    Raises:
        ApiError: `limit` is none.
    """
    limit = _read_limit(query.get("limit"))
    after, before = query.get("after_id"), query.get("before_id")
    kept = [card for card in cards if (not after or card.id > after) and (not before or card.id < before)]
    page = kept[-limit:] if before and not after else kept[:limit]
    return page, len(page) < len(kept)


def not_available(named: str) -> ApiError:
    """The refusal of a model that nobody serves."""
    text = f"{named} is not served here; GET /v1/infer/models lists what is"
    return ApiError(MODEL_NOT_AVAILABLE, text, param="model")


def _openai_entry(card: ModelCard) -> dict[str, Any]:
    return {
        "id": card.id,
        "object": "model",
        "created": card.created_s,
        "owned_by": "b3os",
        "display_name": card.display_name,
        "context_window": card.context_tokens,
        "max_output_tokens": _most_output(card),
        "input_modalities": ["text", "image"] if card.takes_images else ["text"],
        "output_modalities": ["text"],
    }


def _anthropic_entry(card: ModelCard) -> dict[str, Any]:
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.display_name,
        "created_at": datetime.fromtimestamp(card.created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "max_input_tokens": _most_output(card),
        "max_tokens": _most_output(card),
    }


def _most_output(card: ModelCard) -> int | None:
    """Prompt and answer share the window, and each has at least one token of it."""
    return None if card.context_tokens is None else card.context_tokens - 1


def _read_limit(text: str | None) -> int:
    if text is None:
        return USUAL_PAGE
    if text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= MAX_PAGE:
        return int(text)
    raise ApiError(INVALID_REQUEST, f"limit: must be a number from 1 to {MAX_PAGE}", param="limit")
