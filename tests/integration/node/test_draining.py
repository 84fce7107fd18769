"""SIGTERM at a node: what runs goes on, what waits goes back to the edge, and each has an end and a bill."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from node.engine.scripted import ScriptedEngine
from node.limits import names
from node.receive import Arrival, Receiver
from shared.hop import NOT_STARTED
from shared.ids import new_request_id
from shared.node_token import mint
from shared.redis import connect_redis
from tests.heartbeats import heartbeat
from tests.integration.node.conftest import CALLER, HELD_S, KEY, MODEL, PATH, Node, Start, node_token
from tests.integration.node.test_messages import events_of
from tests.redis_server import as_user

ENDLESS = [["text", "a"], ["pause", 600]]


@pytest.fixture
async def narrow(start_node: Start) -> Node:
    """A node whose engine plays one script at a time."""
    engines: list[ScriptedEngine] = []

    async def factory() -> ScriptedEngine:
        engines.append(ScriptedEngine(places=1))
        return engines[-1]

    node = await start_node(factory=factory)
    await until(lambda: node.supervisor.state == "ready")
    node.engine = engines[0]
    return node


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.005)


async def leases(redis_url: str) -> int:
    """Requests of the caller's that are let in."""
    async with connect_redis(as_user("operator", redis_url)) as redis:
        return int(await redis.zcard(names.leases_key(CALLER.org)))


async def asked(node: Node, script: list[Any], held: int) -> asyncio.Task[Any]:
    """A stream that is asked for, and in the engine's hands as the `held`th."""
    task = asyncio.ensure_future(node.post(script, stream=True))
    await until(lambda: node.engine.unfinished_requests() == held)
    return task


async def test_what_waits_goes_back_unbegun_and_what_runs_goes_on(narrow: Node, redis_url: str) -> None:
    goes_on = narrow.hold_pauses()
    begun = await asked(narrow, [["text", "a"], ["pause", HELD_S], ["text", "b"]], 1)
    waiting = [await asked(narrow, [["text", "c"]], held) for held in (2, 3)]
    assert (narrow.supervisor.load().running, narrow.supervisor.load().waiting) == (1, 2)
    narrow.supervisor.drain()
    for task in waiting:
        answer = await task
        assert (answer.status, answer.headers[NOT_STARTED]) == (503, "1")
        assert (await answer.json())["b3os"]["code"] == "infer_backend_unavailable"
    goes_on.set()
    assert [event["type"] for event in await events_of(await begun)][-1] == "message_stop"
    assert await leases(redis_url) == 0


async def test_who_is_in_the_engine_before_its_first_token_stays(narrow: Node) -> None:
    goes_on = narrow.hold_pauses()
    prefilling = await asked(narrow, [["pause", HELD_S], ["text", "a"]], 1)
    narrow.supervisor.drain()
    goes_on.set()
    assert (await events_of(await prefilling))[-1]["type"] == "message_stop"


async def test_who_comes_later_is_refused_as_unbegun(narrow: Node) -> None:
    narrow.supervisor.drain()
    answer = await narrow.post([["text", "a"]])
    assert (answer.status, answer.headers[NOT_STARTED]) == (503, "1")


async def test_what_runs_longer_than_it_may_ends_with_an_error(narrow: Node) -> None:
    stream = await asked(narrow, ENDLESS, 1)
    answer = await stream
    narrow.supervisor.drain()
    await narrow.supervisor.drained(0.01)
    events = await events_of(answer)
    assert (events[-1]["type"], events[-1]["b3os"]["code"]) == ("error", "infer_backend_unavailable")


async def test_an_answer_in_one_piece_that_runs_too_long_is_a_503(narrow: Node) -> None:
    whole = asyncio.ensure_future(narrow.post(ENDLESS))
    await until(lambda: narrow.engine.load().answers == 1)
    narrow.supervisor.drain()
    await narrow.supervisor.drained(0.01)
    answer = await whole
    assert answer.status == 503
    assert NOT_STARTED not in answer.headers  # it was begun, and is billed


async def test_draining_ends_with_the_last_request(narrow: Node) -> None:
    goes_on = narrow.hold_pauses()
    stream = await asked(narrow, [["text", "a"], ["pause", HELD_S], ["text", "b"]], 1)
    narrow.supervisor.drain()
    drained = asyncio.ensure_future(narrow.supervisor.drained(600))
    await stream
    assert not drained.done()
    goes_on.set()
    async with asyncio.timeout(60):
        await drained
    assert (await events_of(await stream))[-1]["type"] == "message_stop"


PEER_MODEL = "b3os/peer"


@pytest.fixture
async def peer(narrow: Node, start_node: Start) -> Node:
    """Another node, of another model, which the first one knows."""
    started = await start_node(model=replace(MODEL, served_id=PEER_MODEL), node_id="n2")
    narrow.peers.hear([heartbeat("n2", model=PEER_MODEL, url=started.url)])
    return started


async def post_for_peer(narrow: Node, script: list[Any], path: str = PATH) -> aiohttp.ClientResponse:
    """Ask the first node for an answer of the other one's model."""
    times = {"now_s": int(time.time()), "request_id": new_request_id()}
    token = mint(KEY, CALLER, audience=["n1", "n2"], method="POST", path=path, **times)  # type: ignore[arg-type]
    text = json.dumps({"scripted": script})
    body = {"model": PEER_MODEL, "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": text}]}
    answer = await narrow.session.post(narrow.url + path, json=body, headers={"Authorization": f"Bearer {token}"})
    narrow.answers.append(answer)
    return answer


@pytest.mark.parametrize("has_head", [True, False], ids=["with a head", "without a head"])
async def test_what_was_passed_on_is_waited_for(narrow: Node, peer: Node, *, has_head: bool) -> None:
    goes_on = peer.hold_pauses()
    script = [["text", "a"], ["pause", HELD_S], ["text", "b"]] if has_head else [["pause", HELD_S], ["text", "b"]]
    asking = asyncio.ensure_future(post_for_peer(narrow, script))
    if has_head:
        await asking
    else:
        await until(lambda: peer.engine.unfinished_requests())
    narrow.supervisor.drain()
    drained = asyncio.ensure_future(narrow.supervisor.drained(600))
    await asyncio.sleep(0)
    assert not drained.done()
    goes_on.set()
    async with asyncio.timeout(60):
        await drained
    assert peer.engine.unfinished_requests() == 0
    assert (await events_of(await asking))[-1]["type"] == "message_stop"


async def test_what_was_passed_on_is_not_waited_for_without_end(narrow: Node, peer: Node) -> None:
    answer = await post_for_peer(narrow, ENDLESS)
    narrow.supervisor.drain()
    async with asyncio.timeout(60):
        await narrow.supervisor.drained(0.01)
    assert peer.engine.unfinished_requests() == 1
    answer.close()


async def test_nothing_is_passed_on_any_more(narrow: Node, peer: Node) -> None:
    narrow.supervisor.drain()
    answer = await post_for_peer(narrow, [["text", "a"]])
    assert (answer.status, answer.headers[NOT_STARTED]) == (503, "1")
    assert peer.engine.load().answers == 0


async def test_a_count_that_runs_goes_back_and_leaves_nothing(
    narrow: Node, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_let_in = asyncio.Event()

    async def wait(self: Receiver, arrival: Arrival, message: object) -> None:
        is_let_in.set()
        await asyncio.sleep(600)

    monkeypatch.setattr(Receiver, "render", wait)
    path = f"{PATH}/count_tokens"
    body = {"model": MODEL.served_id, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"Authorization": f"Bearer {node_token(path)}"}
    asking = asyncio.ensure_future(narrow.session.post(narrow.url + path, json=body, headers=headers))
    await is_let_in.wait()
    narrow.supervisor.drain()
    async with asyncio.timeout(60):
        await narrow.supervisor.drained(600)
        answer = await asking
    assert (answer.status, answer.headers[NOT_STARTED]) == (503, "1")
    assert await leases(redis_url) == 0
