"""The bytes of golden streams, against what `tests/golden/` holds and what the Python SDK reads in it.

`UPDATE_GOLDEN=1 pytest tests/clients/test_golden_streams.py` writes the files anew; `git diff` then shows what
clients would see.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import anthropic
import httpx2
import pytest
from aiohttp import ClientSession
from anthropic import Anthropic

from tests.clients.golden import FAILURE, GOLDEN, SILENCE, Conversation, comparable
from tests.clients.golden_bytes import FOLDER, golden_path, normalise
from tests.e2e.stack import DevStack
from tests.e2e.unheard import heard_later, says_unheard
from tests.stream_checker import check_stream, read_frames

each_stream = pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)


@pytest.fixture(scope="module")
async def streams(dev_scripted: DevStack) -> dict[str, bytes]:
    """All of them, recorded at once, since one takes longer than ten seconds."""

    async def record(session: ClientSession, golden: Conversation) -> bytes:
        url = f"{dev_scripted.base_url}/v1/messages"
        body = golden.body() | {"stream": True}
        async with await heard_later(lambda: session.post(url, json=body), says_unheard) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/event-stream"
            return await response.read()

    async with ClientSession(headers={"Authorization": f"Bearer {dev_scripted.api_key}"}) as session:
        recorded = await asyncio.gather(*(record(session, golden) for golden in GOLDEN))
    return {golden.name: raw for golden, raw in zip(GOLDEN, recorded, strict=True)}


@each_stream
def test_a_stream_is_the_golden_one_to_the_byte(streams: dict[str, bytes], golden: Conversation) -> None:
    path, raw = golden_path(golden), normalise(streams[golden.name])
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_bytes(raw)
    assert raw == path.read_bytes()


@each_stream
def test_a_stream_keeps_to_the_grammar(streams: dict[str, bytes], golden: Conversation) -> None:
    check_stream(read_frames(streams[golden.name]), may_fail=golden is FAILURE)


def test_a_silence_is_broken_by_a_ping(streams: dict[str, bytes]) -> None:
    kinds = [event["type"] for event in read_frames(streams[SILENCE.name])]
    assert kinds[1:5] == ["content_block_start", "content_block_delta", "ping", "content_block_delta"]


def test_no_golden_stream_is_left_over() -> None:
    assert set(FOLDER.glob("*.sse")) == {golden_path(golden) for golden in GOLDEN}


@each_stream
def test_the_python_sdk_reads_a_golden_stream(golden: Conversation) -> None:
    client = replaying(golden_path(golden))
    with client, client.messages.stream(**golden.body()) as stream:
        if golden is FAILURE:
            with pytest.raises(anthropic.APIStatusError) as caught:
                stream.until_done()
            assert caught.value.type == "overloaded_error"
        else:
            assert comparable(stream.get_final_message().to_dict()) == golden.answer(is_stream=True)


def replaying(path: Path) -> Anthropic:
    """A client whose every request is answered with a file."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        del request
        return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=path.read_bytes())

    transport = httpx2.MockTransport(answer)
    return Anthropic(base_url="http://nowhere", api_key="none", http_client=httpx2.Client(transport=transport))
