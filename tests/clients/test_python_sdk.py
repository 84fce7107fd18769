"""Anthropic's Python SDK against the whole service: one answer in every form, and every refusal in its class."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic

from tests.clients.golden import (
    CONVERSATIONS,
    FAILURE,
    MODEL,
    REFUSALS,
    Conversation,
    Refusal,
    comparable,
    script,
)
from tests.clients.recorder import Recorder
from tests.e2e.stack import DevStack

CLASSES = {
    400: anthropic.BadRequestError,
    401: anthropic.AuthenticationError,
    403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError,
    413: anthropic.ContentTooLargeError,
    415: anthropic.APIStatusError,
    500: anthropic.InternalServerError,
    503: anthropic.ServiceUnavailableError,
}
each_conversation = pytest.mark.parametrize("golden", CONVERSATIONS, ids=lambda golden: golden.name)
each_refusal = pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)


def read_events(events: list[Any]) -> dict[str, Any]:
    """A message from the raw iterator's events, put together as a client of its own would."""
    message: dict[str, Any] = events[0].message.to_dict()
    parts: list[str] = []
    for event in events[1:]:
        match event.type:
            case "content_block_start":
                message["content"].append(event.content_block.to_dict())
            case "content_block_delta":
                add_delta(message["content"][event.index], event.delta, parts)
            case "content_block_stop" if parts:
                message["content"][event.index]["input"] = read_input(parts)
                parts = []
            case "message_delta":
                message |= event.delta.to_dict() | {"usage": event.usage.to_dict()}
            case _:
                pass
    return message


def add_delta(block: dict[str, Any], delta: Any, parts: list[str]) -> None:
    match delta.type:
        case "input_json_delta":
            parts.append(delta.partial_json)
        case "text_delta":
            block["text"] += delta.text
        case "thinking_delta":
            block["thinking"] += delta.thinking
        case "signature_delta":
            block["signature"] += delta.signature
        case _:
            raise AssertionError(delta)


def read_input(parts: list[str]) -> dict[str, Any]:
    """A call that was cut stays without input."""
    try:
        arguments: dict[str, Any] = json.loads("".join(parts))
    except ValueError:
        return {}
    return arguments


@each_conversation
def test_an_answer_is_the_same_whole_and_streamed(
    client: Anthropic, recorder: Recorder, golden: Conversation
) -> None:
    whole = client.messages.create(**golden.body())
    assert comparable(whole.to_dict()) == golden.answer(is_stream=False)
    with client.messages.stream(**golden.body()) as stream:
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert comparable(streamed.to_dict()) == golden.answer(is_stream=True)
    assert text == "".join(block.text for block in whole.content if block.type == "text")
    assert recorder.statuses == [200, 200]
    assert whole._request_id
    assert stream.request_id
    assert whole.to_dict()["b3os"]["route"] == "local"


@each_conversation
def test_the_raw_events_make_the_same_answer(client: Anthropic, golden: Conversation) -> None:
    with client.messages.create(stream=True, **golden.body()) as stream:
        events = list(stream)
    assert comparable(read_events(events)) == golden.answer(is_stream=True)
    assert [event.type for event in events[-2:]] == ["message_delta", "message_stop"]


async def test_many_conversations_at_once_do_not_mix(dev_scripted: DevStack) -> None:
    recorder = Recorder()

    async def ask(client: AsyncAnthropic, golden: Conversation) -> None:
        whole = await client.messages.create(**golden.body())
        assert comparable(whole.to_dict()) == golden.answer(is_stream=False)
        async with client.messages.stream(**golden.body()) as stream:
            streamed = await stream.get_final_message()
        assert comparable(streamed.to_dict()) == golden.answer(is_stream=True)

    async with AsyncAnthropic(
        base_url=dev_scripted.base_url, auth_token=dev_scripted.api_key, middleware=[recorder]
    ) as client:
        await asyncio.gather(*(ask(client, golden) for golden in CONVERSATIONS * 4))
    assert recorder.statuses == [200] * (len(CONVERSATIONS) * 8)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@each_refusal
def test_a_refusal_is_an_error_of_its_class(
    client: Anthropic, recorder: Recorder, refusal: Refusal, *, is_stream: bool
) -> None:
    asked = client if refusal.is_final else client.with_options(max_retries=0)
    with pytest.raises(anthropic.APIStatusError) as caught:
        asked.messages.create(stream=is_stream, extra_headers=dict(refusal.headers), **refusal.body())
    error = caught.value
    assert type(error) is CLASSES[refusal.status]
    assert (error.status_code, error.type) == (refusal.status, refusal.kind)
    assert error.request_id
    assert error.request_id.startswith("req_")
    assert isinstance(error.body, dict)
    told = error.body["b3os"] if "b3os" in error.body else error.body["error"]
    assert told["code"] == refusal.code
    assert recorder.statuses == [refusal.status]


def test_a_key_without_the_scope_is_refused_once(
    client: Anthropic, recorder: Recorder, key_without_scope: str
) -> None:
    with pytest.raises(anthropic.PermissionDeniedError) as caught:
        client.with_options(auth_token=key_without_scope).messages.create(**CONVERSATIONS[0].body())
    assert caught.value.type == "permission_error"
    assert recorder.statuses == [403]


def test_what_may_pass_is_asked_again(client: Anthropic, recorder: Recorder) -> None:
    with pytest.raises(anthropic.InternalServerError):
        client.with_options(max_retries=1).messages.create(
            model=MODEL, max_tokens=9, messages=[{"role": "user", "content": script([["crash"]])}]
        )
    assert recorder.statuses == [500, 500]


def test_a_restarting_runtime_says_when_to_ask_again(client: Anthropic) -> None:
    (dead,) = (refusal for refusal in REFUSALS if refusal.status == 503)
    with pytest.raises(anthropic.ServiceUnavailableError) as caught:
        client.with_options(max_retries=0).messages.create(**dead.body())
    assert caught.value.response.headers["retry-after"] == "5"
    assert "x-should-retry" not in caught.value.response.headers


def test_a_stream_that_fails_says_so_after_what_it_had(client: Anthropic, recorder: Recorder) -> None:
    seen = []
    with (
        pytest.raises(anthropic.APIStatusError) as caught,
        client.messages.create(stream=True, **FAILURE.body()) as stream,
    ):
        seen.extend(stream)
    assert [event.type for event in seen] == ["message_start", "content_block_start", "content_block_delta"]
    assert (caught.value.type, caught.value.status_code) == ("overloaded_error", 200)
    assert isinstance(caught.value.body, dict)
    assert caught.value.request_id == caught.value.body["request_id"]
    with pytest.raises(anthropic.APIStatusError) as caught, client.messages.stream(**FAILURE.body()) as helper:
        helper.get_final_message()
    assert caught.value.type == "overloaded_error"
    assert recorder.statuses == [200, 200]
