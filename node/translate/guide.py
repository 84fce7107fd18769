"""A request to what its answer may and must look like. Must not know grammars: engines make them of it."""

from __future__ import annotations

from node.engine.port import Guide, Schema, Tool
from node.wire.request import (
    AnyChoice,
    AutoChoice,
    MessagesRequest,
    NoChoice,
    ThinkingEnabled,
    ToolChoice,
)
from node.wire.rules import list_shown_tools


def build_guide(request: MessagesRequest) -> Guide:
    """A forced call leaves no text, so that an answer's schema has nothing to say about it."""
    choice = request.tool_choice
    must_call = isinstance(choice, AnyChoice | ToolChoice)
    return Guide(
        tools=_callable_tools(request),
        must_call=must_call,
        one_call=isinstance(choice, ToolChoice)
        or (isinstance(choice, AutoChoice | AnyChoice) and bool(choice.disable_parallel_tool_use)),
        answer=None if must_call else _answer(request),
        thinking_budget_tokens=(
            request.thinking.budget_tokens if isinstance(request.thinking, ThinkingEnabled) else None
        ),
    )


def _callable_tools(request: MessagesRequest) -> tuple[Tool, ...]:
    choice = request.tool_choice
    if isinstance(choice, NoChoice):
        return ()
    places = {tool.name: index for index, tool in enumerate(request.tools or ())}
    return tuple(
        Tool(tool.name, Schema(tool.input_schema, f"tools.{places[tool.name]}.input_schema"), bool(tool.strict))
        for tool in list_shown_tools(request)
        if not isinstance(choice, ToolChoice) or tool.name == choice.name
    )


def _answer(request: MessagesRequest) -> Schema | None:
    if request.output_config is None or request.output_config.format is None:
        return None
    return Schema(request.output_config.format.json_schema, "output_config.format.schema")
