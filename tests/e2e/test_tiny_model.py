"""Thinking, tools and vision on real vLLM, through the official SDK, whole and streamed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema_rs
import pytest
from anthropic import Anthropic, BadRequestError
from anthropic.types import Message

from tests.clients.recorder import Recorder
from tests.e2e.stack import ROOT, DevStack
from tests.e2e.tiny import LEAST_BUDGET_TOKENS, Block, picture, request_of
from tests.integration.egress.conftest import At, at, lab
from tests.integration.egress.lab import Lab
from tests.models.prompts import FIXED, Fixed

__all__ = ["at", "lab"]
CASES = [fixed for fixed in FIXED if fixed.budget is None or fixed.budget >= LEAST_BUDGET_TOKENS]
IDS = [f"{index}-{fixed.skill}" for index, fixed in enumerate(CASES)]
FETCHED = [
    (fixed, places)
    for fixed in CASES
    if fixed.colours
    for places in sorted({tuple(range(len(fixed.colours))), (0,), (len(fixed.colours) - 1,)})
]
"""Which of a prompt's pictures are fetched."""
MODEL = "b3os/tiny-vision"
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 40},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 3},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}
WEATHER: dict[str, Any] = {"name": "get_weather", "input_schema": CITY}
TIME: dict[str, Any] = {
    "name": "get_time",
    "input_schema": {
        "type": "object",
        "properties": {"zone": {"type": "string", "maxLength": 30}},
        "required": ["zone"],
    },
}


@pytest.fixture(scope="module")
def client(dev_tiny: DevStack) -> Iterator[Anthropic]:
    own: dict[str, Any] = {"base_url": dev_tiny.base_url, "auth_token": dev_tiny.api_key}
    with Anthropic(**own, max_retries=0, timeout=600, middleware=[Recorder()]) as client:
        yield client


def create(client: Anthropic, fields: dict[str, Any], **more: Any) -> Message:
    body = {"model": MODEL, "max_tokens": 200, **fields, **more}
    message: Message = client.messages.create(extra_body=body, **_typed(body))
    return message


def stream(client: Anthropic, fields: dict[str, Any], **more: Any) -> Message:
    body = {"model": MODEL, "max_tokens": 200, **fields, **more}
    with client.messages.stream(extra_body=body, **_typed(body)) as answer:
        return answer.get_final_message()


def _typed(body: dict[str, Any]) -> Any:
    """What the SDK insists on by name; all else goes in the body as it is, temperature among it."""
    return {name: body[name] for name in ("model", "max_tokens", "messages")}


def check(message: Message, fixed: Fixed) -> None:
    blocks = list(message.content)
    if fixed.thought is not None:
        thinking = blocks.pop(0)
        assert thinking.type == "thinking"
        assert thinking.signature
        thought = fixed.thought.strip("\n")
        assert thought.startswith(thinking.thinking) if fixed.budget else thinking.thinking == thought
    if fixed.text:
        text = blocks.pop(0)
        assert text.type == "text"
        assert text.text == fixed.text
    assert [
        (block.type == "tool_use" and block.name, getattr(block, "input", None)) for block in blocks
    ] == fixed.calls
    assert message.stop_reason == ("tool_use" if fixed.calls else "end_turn")


@pytest.mark.parametrize("fixed", CASES, ids=IDS)
def test_every_skill_whole_and_streamed_and_counted(client: Anthropic, fixed: Fixed) -> None:
    fields = request_of(fixed)
    whole = create(client, fields, temperature=0)
    check(whole, fixed)
    streamed = stream(client, fields, temperature=0)
    check(streamed, fixed)
    assert streamed.usage == whole.usage
    counted = client.messages.count_tokens(
        model=MODEL,
        messages=fields["messages"],
        extra_body={name: fields[name] for name in ("system", "tools", "thinking") if name in fields},
    )
    assert counted.input_tokens == whole.usage.input_tokens


@pytest.mark.parametrize("budget", [1024, 1500])
def test_a_thinking_budget_holds_on_a_model_that_wants_to_go_on(client: Anthropic, budget: int) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tests" / "models" / "tiny-vision")
    turns = [{"role": "user", "content": "Think for ever, then say: done"}]
    thinking = {"type": "enabled", "budget_tokens": budget}
    message = create(client, {"messages": turns, "thinking": thinking, "max_tokens": 3000}, temperature=0)
    thought = message.content[0]
    assert thought.type == "thinking"
    spent = len(tokenizer.encode(thought.thinking, add_special_tokens=False))
    assert budget - 8 <= spent <= budget
    assert message.content[1].type == "text"
    assert message.content[1].text == "done"
    assert message.stop_reason == "end_turn"


def test_thinking_that_max_tokens_cuts_stays_thinking(client: Anthropic) -> None:
    turns = [{"role": "user", "content": "Think for ever, then say: done"}]
    message = stream(client, {"messages": turns, "thinking": {"type": "adaptive"}}, max_tokens=50, temperature=0)
    assert [block.type for block in message.content] == ["thinking"]
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 50)


FORCED: dict[str, dict[str, Any]] = {
    "any": {"tools": [WEATHER, TIME], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    "tool": {"tools": [TIME, WEATHER], "tool_choice": {"type": "tool", "name": "get_weather"}},
    "any after thinking": {
        "tools": [WEATHER, TIME],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "adaptive"},
    },
    "tool after thinking": {
        "tools": [WEATHER],
        "tool_choice": {"type": "tool", "name": "get_weather"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
}


def test_a_hundred_forced_calls_at_temperature_one_have_inputs_that_validate(client: Anthropic) -> None:
    """The model is asked to say something, so that it would rather do anything but call."""
    turns = [{"role": "user", "content": "Say: hello world"}]
    schemas = {tool["name"]: jsonschema_rs.Draft202012Validator(tool["input_schema"]) for tool in (WEATHER, TIME)}

    def ask(number: int) -> Message:
        fields = {"messages": turns, "max_tokens": 2000, "temperature": 1, **list(FORCED.values())[number % 4]}
        return create(client, fields) if number % 8 < 4 else stream(client, fields)

    with ThreadPoolExecutor(12) as pool:
        messages = list(pool.map(ask, range(100)))
    for message in messages:
        call = message.content[-1]
        assert call.type == "tool_use"
        assert message.stop_reason == "tool_use"
        assert [block.type for block in message.content[:-1]] in ([], ["thinking"])
        assert schemas[call.name].is_valid(call.input), call.input


def test_parallel_calls_end_with_the_first_when_they_are_off(client: Anthropic) -> None:
    both = next(fixed for fixed in CASES if fixed.skill == "two calls" and fixed.thought is None)
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    message = create(client, request_of(both), tool_choice=choice, temperature=0)
    assert [(block.name, block.input) for block in message.content if block.type == "tool_use"] == both.calls[:1]
    assert message.stop_reason == "tool_use"


def test_none_calls_nothing_though_the_tools_stay_in_the_prompt(client: Anthropic) -> None:
    call = next(fixed for fixed in CASES if fixed.skill == "call")
    fields = request_of(call)
    free = create(client, fields, temperature=0)
    message = create(client, fields, tool_choice={"type": "none"}, temperature=0)
    assert {block.type for block in message.content} == {"text"}
    assert not [block for block in message.content if block.type == "text" and "tool_call" in block.text]
    assert message.usage.input_tokens == free.usage.input_tokens


ADA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("thinking", [None, {"type": "adaptive"}])
@pytest.mark.parametrize("tools", [None, [WEATHER]])
def test_json_output_matches_its_schema_with_thinking_and_beside_tools(
    client: Anthropic, thinking: Any, tools: Any
) -> None:
    turns = [{"role": "user", "content": "Answer as JSON: name Ada, age 36"}]
    answer = {"format": {"type": "json_schema", "schema": ADA}}
    fields = {"messages": turns, "output_config": answer, "thinking": thinking, "tools": tools}
    message = stream(client, fields, temperature=0)
    assert [block.type for block in message.content] == (["text"] if thinking is None else ["thinking", "text"])
    text = message.content[-1]
    assert text.type == "text"
    assert jsonschema_rs.Draft202012Validator(ADA).is_valid(json.loads(text.text))
    assert message.stop_reason == "end_turn"


def test_json_is_written_even_by_a_model_that_would_rather_say_something(client: Anthropic) -> None:
    turns = [{"role": "user", "content": "Say: hello world"}]
    answer = {"format": {"type": "json_schema", "schema": ADA}}
    for number in range(10):
        text = create(client, {"messages": turns, "output_config": answer}, temperature=number / 10).content[0]
        assert text.type == "text"
        assert jsonschema_rs.Draft202012Validator(ADA).is_valid(json.loads(text.text))


def test_a_strict_tool_s_input_matches_when_the_model_calls_it(client: Anthropic) -> None:
    call = next(fixed for fixed in CASES if fixed.skill == "call")
    fields = request_of(call) | {"tools": [WEATHER | {"strict": True}]}
    message = create(client, fields, temperature=0)
    block = message.content[0]
    assert block.type == "tool_use"
    assert jsonschema_rs.Draft202012Validator(CITY).is_valid(block.input)


def test_stop_sequences_are_not_looked_for_in_thinking_nor_in_a_call(client: Anthropic) -> None:
    hard = next(fixed for fixed in CASES if fixed.skill == "say, thinking" and fixed.text == "hello world")
    message = create(client, request_of(hard), stop_sequences=["wor", "\n", "the"], temperature=0)
    assert message.content[0].type == "thinking"
    assert message.content[1].type == "text"
    assert message.content[1].text == "hello "
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "wor")
    call = next(fixed for fixed in CASES if fixed.skill == "call")
    check(create(client, request_of(call), stop_sequences=["Paris", "city", "\n"], temperature=0), call)


def test_a_call_that_max_tokens_cuts_invents_nothing(client: Anthropic) -> None:
    call = next(fixed for fixed in CASES if fixed.skill == "call")
    fields = request_of(call)
    for max_tokens in range(1, 16):
        message = create(client, fields, max_tokens=max_tokens, temperature=0)
        if message.stop_reason == "tool_use":
            check(message, call)
        else:
            assert message.stop_reason == "max_tokens"
            assert [block.type for block in message.content] == ["text"]


def test_a_model_that_sees_says_so_in_the_list(client: Anthropic, dev_tiny: DevStack) -> None:
    del dev_tiny
    entry: Any = client.get("/models/" + MODEL.replace("/", "%2F"), cast_to=object)
    assert entry["input_modalities"] == ["text", "image"]


@pytest.mark.parametrize(
    ("fixed", "places"), FETCHED, ids=[f"{'-'.join(fixed.colours)}-{places}" for fixed, places in FETCHED]
)
def test_a_fetched_image_is_seen_as_one_that_was_sent(
    client: Anthropic, lab: Lab, at: At, fixed: Fixed, places: tuple[int, ...]
) -> None:
    """In turns and in results, all of them or some among others: the same words, in the same order, for as much."""
    shown = itertools.count()
    fields = request_of(fixed, lambda colour: remote(at, colour) if next(shown) in places else picture(colour))
    whole, streamed = create(client, fields, temperature=0), stream(client, fields, temperature=0)
    check(whole, fixed)
    check(streamed, fixed)
    counted = client.messages.count_tokens(
        model=MODEL,
        messages=fields["messages"],
        extra_body={name: fields[name] for name in ("system", "tools", "thinking") if name in fields},
    )
    assert len(lab.requests) == 3 * len({fixed.colours[place] for place in places})
    sent = create(client, request_of(fixed), temperature=0)
    assert whole.usage == streamed.usage == sent.usage
    assert counted.input_tokens == sent.usage.input_tokens


def remote(at: At, colour: str) -> Block:
    """An image block whose picture the lab has."""
    return {"type": "image", "source": {"type": "url", "url": at(f"/colour?{colour}")}}


def test_too_many_images_for_the_window_are_told_as_such(client: Anthropic) -> None:
    turns = [{"role": "user", "content": [picture("red")] * 21}]
    with pytest.raises(BadRequestError, match="Could not process image: at most 20"):
        create(client, {"messages": turns})
