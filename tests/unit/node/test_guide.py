"""What a request asks of its answer."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from node.engine.port import Guide, Schema, Tool
from node.translate.guide import build_guide
from node.wire.parse import parse_request

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
