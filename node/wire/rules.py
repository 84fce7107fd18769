"""How the fields of a request belong together.

Decides what no field can tell on its own: calls and their results, choices and their tools, budgets. Must not know
the shape of a field (`request.py`), nor models or engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from node.json_levels import MOST_LEVELS, is_deeper
from node.wire.faults import invalid
from node.wire.request import (
    AnyChoice,
    AssistantBlock,
    AssistantMessage,
    MessagesRequest,
    ThinkingEnabled,
    Tool,
    ToolChoice,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from node.wire.schema import check_schema


def check_rules(request: MessagesRequest) -> None:
    """Raise the first fault.

    Raises:
        ApiError: `INVALID_REQUEST`.
    """
    _check_contents(request)
    _check_calls(request)
    _check_tools(request.tools or [])
    _check_references(request)
    _check_choice(request)
    _check_thinking(request)
    _check_format(request)


def list_references(request: MessagesRequest) -> Iterator[tuple[str, str]]:
    """Every tool that a result loads: the path of the reference, and the name."""
    for path, block in _walk_blocks(request):
        if isinstance(block, ToolResultBlock) and isinstance(block.content, list):
            for index, inner in enumerate(block.content):
                if isinstance(inner, ToolReferenceBlock):
                    yield f"{path}.content.{index}", inner.tool_name


def list_shown_tools(request: MessagesRequest) -> list[Tool]:
    """The tools that the prompt shows: a deferred one once a result referred to it, or the choice names it."""
    shown = {name for _, name in list_references(request)}
    if isinstance(request.tool_choice, ToolChoice):
        shown.add(request.tool_choice.name)
    return [tool for tool in request.tools or () if not tool.defer_loading or tool.name in shown]


def _walk_blocks(request: MessagesRequest) -> Iterator[tuple[str, object]]:
    for index, message in enumerate(request.messages):
        if isinstance(message, UserMessage | AssistantMessage) and not isinstance(message.content, str):
            for place, block in enumerate(message.content):
                yield f"messages.{index}.content.{place}", block


def _check_contents(request: MessagesRequest) -> None:
    """Only a trailing assistant turn, the start of the answer, may be empty; and it can't have called a tool."""
    if all(message.role == "assistant" and not _says_something(message.content) for message in request.messages):
        raise invalid("messages", "must say something")
    last = len(request.messages) - 1
    for index, message in enumerate(request.messages):
        path = f"messages.{index}.content"
        is_start = index == last and message.role == "assistant"
        if not message.content and not is_start:
            raise invalid(path, "must not be empty")
        if is_start:
            for place, block in enumerate(message.content):
                if isinstance(block, ToolUseBlock):
                    raise invalid(
                        f"{path}.{place}", "the last turn can't be a tool call: its tool_result must follow"
                    )


def _says_something(content: str | list[AssistantBlock]) -> bool:
    if isinstance(content, str):
        return bool(content)
    return any(
        getattr(block, "text", "") or getattr(block, "thinking", "") or block.type == "tool_use" for block in content
    )


def _check_calls(request: MessagesRequest) -> None:
    """Each result answers an earlier call, and each call gets one result."""
    waiting: dict[str, str] = {}  # call id to the path of its block
    seen: set[str] = set()
    for path, block in _walk_blocks(request):
        if isinstance(block, ToolUseBlock):
            if is_deeper(block.input):
                raise invalid(f"{path}.input", f"is nested deeper than {MOST_LEVELS} levels")
            if block.id in seen:
                raise invalid(f"{path}.id", "an earlier tool_use has the same id")
            seen.add(block.id)
            waiting[block.id] = path
        elif isinstance(block, ToolResultBlock) and waiting.pop(block.tool_use_id, None) is None:
            words = "its tool_use has a result already" if block.tool_use_id in seen else "no earlier tool_use has it"
            raise invalid(f"{path}.tool_use_id", words)
    for path in waiting.values():
        raise invalid(path, "this tool_use has no tool_result in the turns that follow")


def _check_tools(tools: Sequence[Tool]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in names:
            raise invalid(f"tools.{index}.name", "an earlier tool has the same name")
        names.add(tool.name)
        check_schema(tool.input_schema, f"tools.{index}.input_schema")


def _check_references(request: MessagesRequest) -> None:
    names = {tool.name for tool in request.tools or []}
    for path, name in list_references(request):
        if name not in names:
            raise invalid(f"{path}.tool_name", "no tool of this name is in tools")


def _check_choice(request: MessagesRequest) -> None:
    choice = request.tool_choice
    shown = {tool.name for tool in list_shown_tools(request)}
    if isinstance(choice, AnyChoice) and not shown:
        raise invalid("tool_choice", "a forced call needs tools, and not only deferred ones")
    if isinstance(choice, ToolChoice) and choice.name not in shown:
        raise invalid("tool_choice.name", "no tool of this name is in tools")


def _check_thinking(request: MessagesRequest) -> None:
    thinking = request.thinking
    if isinstance(thinking, ThinkingEnabled) and thinking.budget_tokens >= request.max_tokens:
        raise invalid("thinking.budget_tokens", "must be less than max_tokens, which it is part of")


def _check_format(request: MessagesRequest) -> None:
    if request.output_config is None or request.output_config.format is None:
        return
    path = "output_config.format"
    if request.messages[-1].role == "assistant":
        raise invalid(path, "can't be used with a trailing assistant turn: its text isn't part of the answer")
    schema = request.output_config.format.json_schema
    check_schema(schema, f"{path}.schema")
