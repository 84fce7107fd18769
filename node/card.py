"""What this node serves, as lists and heartbeats show it. Must not know who asks."""

from __future__ import annotations

from node.catalog.served import ServedModel
from node.engine.supervisor import Supervisor
from shared.heartbeat import ModelCard


def build_card(model: ServedModel, supervisor: Supervisor, created_s: int) -> ModelCard:
    """The window is None while the model's own is not known yet."""
    return ModelCard(
        id=model.served_id,
        display_name=model.display_name,
        created_s=created_s,
        context_tokens=supervisor.context_tokens or model.context_tokens,
        takes_images=supervisor.takes_images,
    )
