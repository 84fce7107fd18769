"""The node's routes. Must not read settings or the environment: `__main__` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from prometheus_client.registry import Collector

from node.admission import Admission
from node.catalog.served import ServedModel
from node.count_tokens import CountTokensHandler
from node.engine.supervisor import Supervisor
from node.forward import Forwarder
from node.gate import Gate
from node.images.intake import ImageIntake
from node.messages import MessagesHandler
from node.models import ModelsHandler
from node.peers import Peers
from node.receive import Receiver
from node.slow_work import SlowWork
from node.sse import PING_AFTER_S
from shared.heartbeat import ModelCard, NodeState
from shared.operator import build_operator_app
from shared.web import build_app, render_anthropic


def build_node_app(
    *,
    node_id: str,
    model: ServedModel,
    gate: Gate,
    admission: Admission,
    images: ImageIntake,
    supervisor: Supervisor,
    peers: Peers,
    forwarder: Forwarder,
    card: Callable[[], ModelCard],
    ping_after_s: float = PING_AFTER_S,
) -> web.Application:
    """What the edge talks to; every refusal is in Anthropic's shape."""
    app = build_app(lambda request: render_anthropic)
    receiver = Receiver(model, gate, admission, images, SlowWork(), peers)
    messages = MessagesHandler(node_id, receiver, supervisor, ping_after_s)
    count_tokens = CountTokensHandler(receiver, supervisor)
    models = ModelsHandler(node_id, card, peers, gate)
    app.router.add_post("/v1/infer/v1/messages", forwarder.around(messages, supervisor.handover))
    app.router.add_post("/v1/infer/v1/messages/count_tokens", forwarder.around(count_tokens, supervisor.handover))
    app.router.add_get("/v1/infer/models", models.openai_list)
    app.router.add_get(r"/v1/infer/models/{id:[\s\S]+}", models.openai_one)
    app.router.add_get("/v1/infer/v1/models", models.anthropic_list)
    app.router.add_get(r"/v1/infer/v1/models/{id:[\s\S]+}", models.anthropic_one)
    return app


def build_node_operator_app(
    *,
    node_id: str,
    model: ServedModel,
    supervisor: Supervisor,
    peers: Peers,
    told: Callable[[], NodeState | None],
    collectors: Sequence[Collector] = (),
) -> web.Application:
    """The internal port: ready while the engine takes requests, once edges can know it.

    Args:
        told: the state that the registry was told last. Who replaces nodes one by one stops the next at our word.
    """

    async def readiness() -> tuple[bool, dict[str, Any]]:
        facts = {
            "node": node_id,
            "state": supervisor.state,
            "model": model.served_id,
            "running": supervisor.running(),
            "waiting": supervisor.load().waiting,
            "restarts": supervisor.restarts,
            "reason": supervisor.reason,
            "peers": peers.ids(),
        }
        return supervisor.state == told() == "ready", facts

    return build_operator_app(readiness, collectors)
