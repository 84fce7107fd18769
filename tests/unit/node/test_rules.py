"""How fields belong together: calls and results, choices and tools, budgets."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from node.wire.parse import parse_count, parse_request
from shared.errors import ApiError

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "get_weather", "input_schema": CITY}
OTHER = {"name": "get_time", "input_schema": CITY}
USER = {"role": "user", "content": "Hi"}


def body(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", "max_tokens": 2000, "messages": [USER], **fields})


def refusal(**fields: Any) -> tuple[str, str | None]:
    with pytest.raises(ApiError) as caught:
        parse_request(body(**fields))
    assert caught.value.message.startswith(f"{caught.value.param}: ")
    return caught.value.condition.code, caught.value.param


def call(*ids: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": name, "name": "get_weather", "input": {}} for name in ids],
    }


def result(*ids: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, **fields} for name in ids]}


def test_calls_and_their_results_are_taken() -> None:
    turns = [USER, call("a", "b"), result("b", "a"), call("c"), USER, result("c", content="x", is_error=True)]
    assert len(parse_request(body(messages=turns)).messages) == 6


@pytest.mark.parametrize(
    ("turns", "param"),
    [
        ([USER, result("a")], "messages.1.content.0.tool_use_id"),
        ([result("a"), call("a"), result("a")], "messages.0.content.0.tool_use_id"),
        ([USER, call("a"), result("a"), result("a")], "messages.3.content.0.tool_use_id"),
        ([USER, call("a"), result("b")], "messages.2.content.0.tool_use_id"),
        ([USER, call("a", "b"), result("a")], "messages.1.content.1"),
        ([USER, call("a"), USER], "messages.1.content.0"),
        ([USER, call("a"), result("a"), call("a"), result("a")], "messages.3.content.0.id"),
        ([USER, call("a")], "messages.1.content.0"),
    ],
)
def test_each_result_answers_an_earlier_call_and_each_call_gets_one_result(turns: Any, param: str) -> None:
    assert refusal(messages=turns) == ("invalid_request", param)


def test_a_trailing_answer_that_called_a_tool_is_refused() -> None:
    turn = {"role": "assistant", "content": [{"type": "text", "text": "a"}, call("a")["content"][0]]}
    assert refusal(messages=[USER, turn]) == ("invalid_request", "messages.1.content.1")


@pytest.mark.parametrize("content", ["", []])
def test_only_a_trailing_answer_may_be_empty(content: Any) -> None:
    empty = {"role": "assistant", "content": content}
    assert parse_request(body(messages=[USER, empty])).messages
    assert refusal(messages=[USER, empty, USER]) == ("invalid_request", "messages.1.content")


def test_tool_names_are_unique() -> None:
    assert refusal(tools=[TOOL, OTHER, TOOL]) == ("invalid_request", "tools.2.name")


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "none"}])
def test_a_free_choice_needs_no_tools(choice: Any) -> None:
    assert parse_request(body(tool_choice=choice)).messages


@pytest.mark.parametrize("tools", [None, [], [TOOL | {"defer_loading": True}]])
def test_any_needs_a_tool_that_is_loaded(tools: Any) -> None:
    assert refusal(tools=tools, tool_choice={"type": "any"}) == ("invalid_request", "tool_choice")


@pytest.mark.parametrize("tools", [None, [OTHER]])
def test_tool_names_one_of_the_tools(tools: Any) -> None:
    choice = {"type": "tool", "name": "get_weather"}
    assert refusal(tools=tools, tool_choice=choice) == ("invalid_request", "tool_choice.name")
    assert parse_request(body(tools=[OTHER, TOOL | {"defer_loading": True}], tool_choice=choice)).messages


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    while levels > 1:
        schema = {"type": "object", "properties": {"a": schema}}
        levels -= 2
    return schema


def test_a_schema_is_at_most_64_kib_and_32_levels() -> None:
    large = {"type": "object", "description": "x" * 65_536}
    assert refusal(tools=[{"name": "f", "input_schema": large}]) == ("invalid_request", "tools.0.input_schema")
    assert refusal(tools=[{"name": "f", "input_schema": deep(33)}]) == ("invalid_request", "tools.0.input_schema")
    assert parse_request(body(tools=[{"name": "f", "input_schema": deep(31)}])).messages
    answer = {"format": {"type": "json_schema", "schema": deep(33)}}
    assert refusal(output_config=answer) == ("invalid_request", "output_config.format.schema")


def test_a_thinking_budget_is_less_than_max_tokens() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    assert refusal(thinking=thinking) == ("invalid_request", "thinking.budget_tokens")
    assert parse_request(body(thinking=thinking | {"budget_tokens": 1999})).messages


def test_counting_asks_for_no_max_tokens_beside_a_budget() -> None:
    fields = {"model": "m", "messages": [USER], "thinking": {"type": "enabled", "budget_tokens": 10_000}}
    assert parse_count(orjson.dumps(fields)).messages


def test_json_can_not_begin_in_a_turn_of_the_caller_s() -> None:
    answer = {"format": {"type": "json_schema", "schema": CITY}}
    start = {"role": "assistant", "content": "{"}
    assert refusal(messages=[USER, start], output_config=answer) == ("invalid_request", "output_config.format")


def test_a_reference_names_a_tool() -> None:
    loaded = result("a", content=[{"type": "tool_reference", "tool_name": "get_weather"}])
    turns = [USER, call("a"), loaded]
    assert parse_request(body(messages=turns, tools=[TOOL | {"defer_loading": True}])).messages
    param = "messages.2.content.0.content.0.tool_name"
    assert refusal(messages=turns, tools=[OTHER]) == ("invalid_request", param)


@pytest.mark.parametrize(
    "content",
    ["", [], [{"type": "text", "text": ""}], [{"type": "redacted_thinking", "data": "x"}]],
)
def test_a_conversation_says_something(content: Any) -> None:
    assert refusal(messages=[{"role": "assistant", "content": content}]) == ("invalid_request", "messages")
    assert parse_request(body(messages=[USER, {"role": "assistant", "content": content}])).messages


def test_counting_takes_null_for_max_tokens() -> None:
    assert parse_count(orjson.dumps({"model": "m", "messages": [USER], "max_tokens": None})).messages


def test_an_input_is_nested_no_deeper_than_it_can_be_told_again() -> None:
    def turns(levels: int) -> list[Any]:
        value: Any = {}
        for _ in range(levels - 1):
            value = {"a": value}
        block = {"type": "tool_use", "id": "a", "name": "f", "input": value}
        return [USER, {"role": "assistant", "content": [block]}, result("a")]

    assert parse_request(body(messages=turns(128))).messages
    assert refusal(messages=turns(129)) == ("invalid_request", "messages.1.content.0.input")
