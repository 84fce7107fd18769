"""The last look at an answer before it is called a success."""

from __future__ import annotations

import pytest

from node.engine.port import End, Guide, Piece, Schema, Text, Tool, ToolArguments, ToolEnd, ToolStart
from node.translate.inspect import BrokenPromise, Inspector

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = Tool("f", Schema(CITY, "tools.0.input_schema"))
STRICT = Tool("f", TOOL.schema, is_strict=True)
ANSWER = Guide(answer=TOOL.schema)
GOOD, BAD = '{"city": "Rome"}', '{"city": 5}'


def call(name: str, *arguments: str) -> list[Piece]:
    return [ToolStart("a", name), *map(ToolArguments, arguments), ToolEnd()]


def look(guide: Guide, pieces: list[Piece]) -> None:
    inspector = Inspector(guide)
    for piece in pieces:
        inspector.see(piece)


@pytest.mark.parametrize(
    ("guide", "pieces"),
    [
        (Guide(), [Text("anything"), End("stop")]),
        (Guide(tools=[TOOL]), [*call("f", BAD), End("stop")]),
        (Guide(tools=[STRICT]), [*call("f", '{"ci', 'ty": "Rome"}'), *call("other", BAD), End("stop")]),
        (Guide(tools=[TOOL], must_call=True), [*call("f", GOOD), *call("f", GOOD), End("stop")]),
        (ANSWER, [Text('{"ci'), Text('ty": "Rome"}'), End("stop")]),
        (ANSWER, [Text('{"ci'), End("length")]),
        (Guide(tools=[TOOL], must_call=True), [ToolStart("a", "f"), ToolArguments('{"ci'), End("length")]),
        (Guide(tools=[TOOL], answer=TOOL.schema), [*call("f", BAD), End("stop")]),
    ],
)
def test_an_answer_that_keeps_its_promise_passes(guide: Guide, pieces: list[Piece]) -> None:
    look(guide, pieces)


@pytest.mark.parametrize(
    ("guide", "pieces"),
    [
        (ANSWER, [Text(BAD), End("stop")]),
        (ANSWER, [Text('{"city": "Rome"'), End("stop")]),
        (ANSWER, [End("stop")]),
        (Guide(tools=[STRICT]), call("f", BAD)),
        (Guide(tools=[TOOL], must_call=True), call("f", BAD)),
        (Guide(tools=[TOOL], must_call=True), call("other", GOOD)),
        (Guide(tools=[TOOL], must_call=True), [Text("I would rather not."), End("stop")]),
    ],
)
def test_an_answer_that_breaks_its_promise_is_no_success(guide: Guide, pieces: list[Piece]) -> None:
    with pytest.raises(BrokenPromise):
        look(guide, pieces)
