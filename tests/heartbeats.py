"""Heartbeats for tests that need no node."""

from __future__ import annotations

from itertools import count
from typing import Any

from shared.heartbeat import Heartbeat, ModelCard, NodeState

_beats = count(1)


def heartbeat(node_id: str, *, model: str = "b3os/a", state: NodeState = "ready", **fields: Any) -> Heartbeat:
    """A new one each time."""
    usual: dict[str, Any] = {
        "id": node_id,
        "url": "http://127.0.0.1:7710",
        "boot": "b",
        "beat": next(_beats),
        "state": state,
        "models": (ModelCard(id=model, display_name=model, created_s=1),),
    }
    return Heartbeat(**usual | fields)
