"""What a request asks of its answer."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from node.engine.port import Guide, Schema, Tool
from node.translate.guide import build_guide, check_promises
from node.wire.parse import parse_request
from shared.errors import ApiError

ONE, TWO = {"type": "object", "title": "one"}, {"type": "object", "title": "two"}
TOOLS: list[dict[str, Any]] = [
    {"name": "one", "input_schema": ONE},
    {"name": "two", "input_schema": TWO, "strict": True},
]
FIRST = Tool("one", Schema(ONE, "tools.0.input_schema"))
SECOND = Tool("two", Schema(TWO, "tools.1.input_schema"), is_strict=True)
ANSWER = {"format": {"type": "json_schema", "schema": ONE}}


def guide(**fields: Any) -> Guide:
    body = {"model": "m", "max_tokens": 4000, "messages": [{"role": "user", "content": "Hi"}], **fields}
    return build_guide(parse_request(orjson.dumps(body)))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, Guide(tools=(FIRST, SECOND))),
        ({"type": "auto"}, Guide(tools=(FIRST, SECOND))),
        ({"type": "auto", "disable_parallel_tool_use": True}, Guide(tools=(FIRST, SECOND), one_call=True)),
        ({"type": "any"}, Guide(tools=(FIRST, SECOND), must_call=True)),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            Guide(tools=(FIRST, SECOND), must_call=True, one_call=True),
        ),
        ({"type": "tool", "name": "two"}, Guide(tools=(SECOND,), must_call=True, one_call=True)),
        ({"type": "none"}, Guide()),
    ],
)
def test_a_choice_says_which_tools_may_and_must_be_called(choice: Any, expected: Guide) -> None:
    assert guide(tools=TOOLS, tool_choice=choice) == expected


def test_a_deferred_tool_can_not_be_called_and_keeps_the_others_paths() -> None:
    tools = [TOOLS[0] | {"defer_loading": True}, TOOLS[1]]
    assert guide(tools=tools) == Guide(tools=(SECOND,))


def test_an_answer_s_schema_stands_beside_tools_but_not_beside_a_forced_call() -> None:
    schema = Schema(ONE, "output_config.format.schema")
    assert guide(output_config=ANSWER) == Guide(answer=schema)
    assert guide(output_config=ANSWER, tools=TOOLS) == Guide(tools=(FIRST, SECOND), answer=schema)
    assert guide(output_config=ANSWER, tools=TOOLS, tool_choice={"type": "any"}).answer is None


def test_a_budget_is_passed_on_and_adaptive_thinking_has_none() -> None:
    assert guide(thinking={"type": "enabled", "budget_tokens": 2000}).thinking_budget_tokens == 2000
    assert guide(thinking={"type": "adaptive"}) == Guide()


LOOSE = {"name": "loose", "input_schema": {"type": "object", "not": {"required": ["x"]}}}
SOUND = {"name": "sound", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def refusal(**fields: Any) -> tuple[str, str | None]:
    with pytest.raises(ApiError) as caught:
        check_promises(guide(**fields))
    return caught.value.condition.code, caught.value.param


def test_a_schema_that_must_hold_is_refused_where_it_can_not_be_enforced() -> None:
    """A free call of the same tool is no promise, so that its schema is only shown to the model."""
    where = ("unsupported_parameter", "tools.1.input_schema.not")
    check_promises(guide(tools=[SOUND, LOOSE]))
    check_promises(guide(tools=[SOUND, LOOSE | {"strict": True}], tool_choice={"type": "none"}))
    check_promises(guide(tools=[SOUND, LOOSE], tool_choice={"type": "tool", "name": "sound"}))
    assert refusal(tools=[SOUND, LOOSE], tool_choice={"type": "any"}) == where
    assert refusal(tools=[SOUND, LOOSE], tool_choice={"type": "tool", "name": "loose"}) == where
    assert refusal(tools=[SOUND, LOOSE | {"strict": True}]) == where
    answer = {"format": {"type": "json_schema", "schema": {"type": "object", "if": {}, "then": {}}}}
    assert refusal(output_config=answer) == ("unsupported_parameter", "output_config.format.schema.if")


def test_what_all_schemas_of_an_answer_weigh_is_bounded_before_they_are_read() -> None:
    heavy = {"type": "object", "description": "x" * 60_000}
    tools = [{"name": f"f{number}", "input_schema": heavy} for number in range(5)]
    check_promises(guide(tools=tools))
    assert refusal(tools=tools, tool_choice={"type": "any"}) == ("unsupported_parameter", "tools.4.input_schema")
