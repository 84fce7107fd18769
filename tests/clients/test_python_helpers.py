"""The helpers of Anthropic's Python SDK: parsed answers, tool runners, counts, lists of models."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool
from anthropic.types.beta import BetaMessageParam
from pydantic import BaseModel

from tests.clients.golden import JSON_ANSWER, MODEL, THINKING, TOOLS, WEATHER, script
from tests.clients.recorder import Recorder
from tests.e2e.stack import DevStack

LOOP = {
    "turns": [
        [
            ["thinking", "Two cities."],
            ["tool", "get_weather", {"city": "Paris"}],
            ["tool", "get_weather", {"city": "Rome"}],
        ],
        [["text", "One more."], ["tool", "get_weather", {"city": "nowhere"}]],
        [["text", "Paris is the warmest."]],
    ]
}
ASKED: list[BetaMessageParam] = [{"role": "user", "content": json.dumps(LOOP)}]
FELL_BACK = [400, 200, 200, 200]
"""What a tool runner's loop of three turns costs: its thread is refused once, and never asked for again."""


class Landmark(BaseModel):
    """What the model is asked for."""

    name: str
    height_m: int
    is_open: bool | None = None


LANDMARK = Landmark(name="Eiffel Tower", height_m=330)
LANDMARK_STEPS = [["thinking", "Paris?"], ["text", '{"name": "Eiffel Tower", '], ["text", '"height_m": 330}']]


def weather_in(city: str) -> str:
    if city == "nowhere":
        raise ValueError("no such city")
    return f"20 degrees in {city}"


@beta_tool
def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: its name.
    """
    return weather_in(city)


@beta_async_tool(name="get_weather")
async def get_weather_later(city: str) -> str:
    """The weather in a city.

    Args:
        city: its name.
    """
    return weather_in(city)


def results(bodies: list[Any]) -> list[tuple[Any, bool]]:
    """The results in the last request, as text and whether they are errors."""
    blocks = [
        block
        for message in bodies[-1]["messages"]
        if not isinstance(message["content"], str)
        for block in message["content"]
    ]
    return [(block["content"], block.get("is_error", False)) for block in blocks if block["type"] == "tool_result"]


def check_loop(recorder: Recorder) -> None:
    assert recorder.statuses == FELL_BACK
    assert [bool(body.get("thread")) for body in recorder.bodies] == [True, False, False, False]
    (paris, rome, nowhere) = results(recorder.bodies)
    assert (paris, rome) == (("20 degrees in Paris", False), ("20 degrees in Rome", False))
    assert "no such city" in str(nowhere[0])
    assert nowhere[1]


def test_an_answer_is_parsed_into_the_model_s_type(client: Anthropic) -> None:
    message = client.messages.parse(
        model=MODEL,
        max_tokens=64,
        messages=[{"role": "user", "content": script(LANDMARK_STEPS)}],
        thinking={"type": "adaptive"},
        output_format=Landmark,
    )
    assert message.parsed_output == LANDMARK
    assert [block.type for block in message.content] == ["thinking", "text"]


def test_a_stream_is_parsed_into_the_model_s_type(client: Anthropic) -> None:
    with client.messages.stream(
        model=MODEL,
        max_tokens=64,
        messages=[{"role": "user", "content": script(LANDMARK_STEPS)}],
        output_format=Landmark,
        thinking={"type": "adaptive"},
    ) as stream:
        assert stream.get_final_message().parsed_output == LANDMARK


def test_a_tool_runner_does_without_a_thread(client: Anthropic, recorder: Recorder) -> None:
    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=64, messages=ASKED, tools=[get_weather], thinking={"type": "adaptive"}
    )
    messages = list(runner)
    assert [message.stop_reason for message in messages] == ["tool_use", "tool_use", "end_turn"]
    assert messages[-1].content[0].to_dict() == {"type": "text", "text": "Paris is the warmest."}
    check_loop(recorder)


def test_a_streaming_tool_runner_does_too(client: Anthropic, recorder: Recorder) -> None:
    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=64, messages=ASKED, tools=[get_weather], thinking={"type": "adaptive"}, stream=True
    )
    texts = ["".join(event.text for event in stream if event.type == "text") for stream in runner]
    assert texts == ["", "One more.", "Paris is the warmest."]
    check_loop(recorder)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
async def test_an_asynchronous_tool_runner_does_too(dev_scripted: DevStack, *, is_stream: bool) -> None:
    recorder = Recorder()
    async with AsyncAnthropic(
        base_url=dev_scripted.base_url, auth_token=dev_scripted.api_key, middleware=[recorder]
    ) as client:
        runner = client.beta.messages.tool_runner(
            model=MODEL,
            max_tokens=64,
            messages=ASKED,
            tools=[get_weather_later],
            thinking={"type": "adaptive"},
            stream=is_stream,
        )
        last = await runner.until_done()
    assert last.content[0].to_dict() == {"type": "text", "text": "Paris is the warmest."}
    check_loop(recorder)


def test_a_tool_runner_without_a_thread_is_refused_nothing(client: Anthropic, recorder: Recorder) -> None:
    client.beta.messages.tool_runner(
        model=MODEL, max_tokens=64, messages=ASKED, tools=[get_weather], thread=False
    ).until_done()
    assert recorder.statuses == FELL_BACK[1:]


def test_a_loop_by_hand_gives_every_block_back(client: Anthropic, recorder: Recorder) -> None:
    """`message.content` goes back as it came: thinking with its signature, calls with their ids."""
    messages: list[Any] = [{"role": "user", "content": json.dumps(LOOP)}]
    while True:
        answer = client.messages.create(
            model=MODEL, max_tokens=64, messages=messages, tools=TOOLS["tools"], thinking={"type": "adaptive"}
        )
        messages.append({"role": "assistant", "content": answer.content})
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            break
        content = [
            {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "20 degrees"}]}
            for call in calls
        ]
        messages.append({"role": "user", "content": content})
    assert answer.content[0].to_dict() == {"type": "text", "text": "Paris is the warmest."}
    assert recorder.statuses == [200, 200, 200]


def test_a_count_is_what_the_answer_is_billed(client: Anthropic) -> None:
    fields: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "one two three"}],
        "system": [{"type": "text", "text": "four five"}],
        **TOOLS,
        **THINKING,
        **JSON_ANSWER,
    }
    counted = client.messages.count_tokens(**fields)
    answered = client.messages.create(max_tokens=64, **fields)
    assert counted.input_tokens == answered.usage.input_tokens == 5
    assert client.beta.messages.count_tokens(model=MODEL, messages=ASKED, tools=[WEATHER]).input_tokens > 0


def test_models_are_listed_and_retrieved(client: Anthropic, recorder: Recorder) -> None:
    (listed,) = client.models.list()
    assert client.models.retrieve(MODEL) == listed
    assert (listed.id, listed.type) == (MODEL, "model")
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.models.retrieve("claude-opus-5-5")
    assert caught.value.type == "not_found_error"
    assert recorder.statuses == [200, 200, 404]
