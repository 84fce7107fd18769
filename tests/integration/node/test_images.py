"""Images on their way to a prompt: which are taken, what they hold, and what is counted."""

from __future__ import annotations

import asyncio
import base64
import gc
import io
import json
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import ClientSession, web
from PIL import Image

from node.app import build_node_operator_app
from node.engine.scripted import ScriptedEngine
from node.images.decode import MAX_SIDE
from node.images.intake import MAX_IMAGES, PIXEL_BYTES
from node.images.verdict import Verdict
from node.metrics import ImageCollector
from node.wire.request import MessagesRequest
from shared.http_server import ContractRunner
from shared.web import render_problem
from tests.integration.node.conftest import MODEL, Node, Start
from tests.integration.node.test_messages import refusal

PATH = "messages.0.content"


def encoded(side: int = 4, colour: str = "red") -> str:
    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def sent(data: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def remote(url: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "url": url}}


def user(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    script = {"type": "text", "text": json.dumps({"scripted": [["text", "x"]]})}
    return [{"role": "user", "content": [*blocks, script]}]


async def test_a_model_that_is_blind_refuses_the_first_image(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedEngine, "max_image_side_px", None)
    for image in (sent(encoded()), sent("!"), remote("https://127.0.0.1/x"), remote("https://images.example/x")):
        answer = await node.post(messages=user(image))
        assert await refusal(answer) == (400, "unsupported_parameter", f"{PATH}.0")
    assert not node.images.guard.counts.by_verdict


async def test_the_first_bad_image_in_the_order_of_the_request_is_told(node: Node) -> None:
    late, early = sent("!"), sent(encoded()[:40])
    answer = await node.post(messages=user(sent(encoded()), early, late))
    assert await refusal(answer) == (400, "invalid_request", f"{PATH}.1.source.data")
    answer = await node.post(messages=user(late, early))
    assert await refusal(answer) == (400, "invalid_request", f"{PATH}.0.source.data")


async def test_nothing_is_fetched_for_a_request_whose_own_images_are_bad(node: Node) -> None:
    answer = await node.post(messages=user(remote("https://127.0.0.1/"), sent("!")))
    assert await refusal(answer) == (400, "invalid_request", f"{PATH}.1.source.data")
    assert not node.images.guard.counts.by_verdict


async def test_images_for_which_there_is_no_room_are_refused_for_now(start_node: Start) -> None:
    node = await start_node()
    node.images.wait_s = 0.1
    two = user(sent(encoded(100)), sent(encoded(100, "blue")))
    assert (await node.post(messages=two)).status == 200
    assert node.images.held_bytes == 0
    half_bytes = MAX_IMAGES * PIXEL_BYTES * MAX_SIDE * MAX_SIDE
    await node.images.pixels.acquire("another", half_bytes)
    await node.images.pixels.acquire("a third", half_bytes)
    answer = await node.post(messages=two)
    assert (await refusal(answer))[:2] == (503, "infer_backend_unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    assert "x-should-retry" not in answer.headers
    node.images.pixels.release("another", half_bytes)
    assert (await node.post(messages=two)).status == 200
    assert node.images.held_bytes == half_bytes


@pytest.mark.parametrize(
    ("images", "status"),
    [
        ([sent(encoded(100))] * 4, 200),
        ([*[sent(encoded(100))] * 4, sent(encoded()[:40])], 400),
        ([*[sent(encoded(100))] * 4, sent("!")], 400),
        ([*[sent(encoded(100))] * 4, remote("https://127.0.0.1/")], 403),
    ],
)
async def test_no_request_outlives_its_answer(node: Node, images: list[dict[str, Any]], status: int) -> None:
    """Without the search for rings of garbage, which is seldom: megabytes of each body would pile up."""

    def alive() -> int:
        return sum(issubclass(type(thing), MessagesRequest | Image.Image) for thing in gc.get_objects())

    assert (await node.post(messages=user(*images))).status == status
    gc.collect()
    gc.disable()
    try:
        before = alive()
        for _ in range(3):
            assert (await node.post(messages=user(*images))).status == status
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                while alive() > before:
                    await asyncio.sleep(0.01)
        assert alive() <= before
    finally:
        gc.enable()


async def test_what_the_guard_decides_is_counted_for_prometheus(node: Node) -> None:
    for url in ("https://127.0.0.1/", "https://127.0.0.1/", "http://x.example/"):
        assert (await node.post(messages=user(remote(url)))).status in (400, 403)
    app = build_node_operator_app(
        node_id="n1",
        model=MODEL,
        supervisor=node.supervisor,
        peers=node.peers,
        told=lambda: node.supervisor.state,
        collectors=[ImageCollector(node.images)],
    )
    runner = ContractRunner(app, render_problem)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with ClientSession() as session, session.get(f"{site.name}/metrics") as answer:
            lines = (await answer.text()).splitlines()
    finally:
        await runner.cleanup()
    assert 'b3os_egress_fetches_total{verdict="address_literal"} 2.0' in lines
    assert 'b3os_egress_fetches_total{verdict="not_https"} 1.0' in lines
    assert "b3os_images_held_bytes 0.0" in lines
    labelled = [line for line in lines if line.startswith("b3os_egress_fetches_total{")]
    assert len(labelled) == len(Verdict)
