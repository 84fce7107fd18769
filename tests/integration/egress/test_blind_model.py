"""A model without vision: its node fetches nothing for it."""

from __future__ import annotations

import asyncio

import pytest

from node.engine.scripted import ScriptedEngine
from tests.contract.bodies import image, remote_image
from tests.integration.node.conftest import Start, start_node
from tests.integration.node.test_messages import refusal

__all__ = ["start_node"]


class BlindEngine(ScriptedEngine):
    """Sees nothing."""

    max_image_side_px = None  # type: ignore[assignment] # the script's is a number


async def start_blind_engine() -> BlindEngine:
    return BlindEngine()


@pytest.mark.parametrize("block", [image(), remote_image("https://127.0.0.1/ok.png"), remote_image("nonsense")])
async def test_an_image_is_refused_unread_by_the_path_of_its_block(start_node: Start, block: object) -> None:
    """The guard would refuse these URLs for other reasons: it isn't asked."""
    node = await start_node(factory=start_blind_engine)
    while node.supervisor.state != "ready":
        await asyncio.sleep(0.001)
    response = await node.post(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}, block]}])
    body = await response.json()
    assert await refusal(response) == (400, "unsupported_parameter", "messages.0.content.1")
    assert "Could not process image" in body["error"]["message"]
