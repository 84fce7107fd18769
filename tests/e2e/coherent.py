"""A request that fits its schema to one that also keeps the rules that no schema tells.

Decides how the fields of a generated request are brought together, and changes no more than that: what is left of it
must be answered. The rules are those of docs/openapi.yaml ("Rules that a schema can't tell").
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Body = dict[str, Any]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="  # one, PNG
MAX_IMAGES = 20
_SCHEMAS: tuple[Body, ...] = (
    {"type": "object"},
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    {
        "type": "object",
        "properties": {"days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
        "required": ["days", "unit"],
        "additionalProperties": False,
    },
)


def make_coherent(generated: Body) -> Body:
    """The request, with its fields brought together."""
    body = copy.deepcopy(generated)
    _write_integers_plainly(body)
    tools = _name_tools_apart(body)
    _answer_every_call(body["messages"])
    if _holds_call(body["messages"][-1]):
        results = [_result(block["id"]) for block in body["messages"][-1]["content"] if block["type"] == "tool_use"]
        body["messages"].append({"role": "user", "content": results})
    _show_real_images(body["messages"])
    _refer_to_tools(body["messages"], [tool["name"] for tool in tools])
    _choose_a_tool(body, tools)
    _fill_turns(body["messages"])
    if all(message["role"] == "assistant" for message in body["messages"]):
        body["messages"].insert(0, {"role": "user", "content": "something"})
    _make_format_enforceable(body)
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled" and "max_tokens" in body:
        body["max_tokens"] = max(body["max_tokens"], thinking["budget_tokens"] + 1)
    return body


def _write_integers_plainly(body: Body) -> None:
    """`81.0` is an integer to JSON Schema, and a float to everybody who reads JSON into types."""
    thinking = body.get("thinking") or {}
    for holder, name in ((body, "max_tokens"), (body, "top_k"), (thinking, "budget_tokens")):
        if isinstance(holder.get(name), float):
            holder[name] = int(holder[name])


def _name_tools_apart(body: Body) -> list[Body]:
    named = {tool["name"]: tool for tool in body.get("tools") or ()}
    for index, tool in enumerate(named.values()):
        tool["input_schema"] = _SCHEMAS[index % len(_SCHEMAS)]
    if body.get("tools"):
        body["tools"] = list(named.values())
    return list(named.values())


def _answer_every_call(messages: list[Body]) -> None:
    """Ids get a number, results the id of an open call; what is left over goes, or gets an answer."""
    waiting: list[str] = []
    numbers = iter(range(100_000))
    for message in list(messages):
        if isinstance(message["content"], str):
            continue
        if message["role"] == "user":
            results = [block for block in message["content"] if block["type"] == "tool_result"]
            orphans = results[len(waiting) :]
            message["content"] = [block for block in message["content"] if not any(block is one for one in orphans)]
            for block in results[: len(waiting)]:
                block["tool_use_id"] = waiting.pop(0)
        for block in message["content"]:
            if block["type"] == "tool_use":
                block["id"] = f"{next(numbers)}{block['id']}"
                waiting.append(block["id"])
    if waiting and not _holds_call(messages[-1]):
        messages.append({"role": "user", "content": [_result(call) for call in waiting]})
    elif waiting:
        last = {block["id"] for block in messages[-1]["content"] if block["type"] == "tool_use"}
        earlier = [_result(call) for call in waiting if call not in last]
        if earlier:
            messages.insert(len(messages) - 1, {"role": "user", "content": earlier})


def _holds_call(message: Body) -> bool:
    content = message["content"]
    return not isinstance(content, str) and any(block["type"] == "tool_use" for block in content)


def _result(call: str) -> Body:
    return {"type": "tool_result", "tool_use_id": call, "content": "done"}


def _walk_lists(messages: list[Body]) -> Iterator[list[Body]]:
    """Every list of blocks, those inside results included."""
    for message in messages:
        if isinstance(message["content"], list):
            yield message["content"]
            yield from (block["content"] for block in message["content"] if isinstance(block.get("content"), list))


def _show_real_images(messages: list[Body]) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    left = MAX_IMAGES
    for blocks in _walk_lists(messages):
        for index, block in enumerate(blocks):
            if block["type"] == "image":
                blocks[index] = block | {"source": source} if left > 0 else {"type": "text", "text": "one too many"}
                left -= 1


def _refer_to_tools(messages: list[Body], names: list[str]) -> None:
    for blocks in _walk_lists(messages):
        if not names:
            blocks[:] = [block for block in blocks if block["type"] != "tool_reference"]
        for index, block in enumerate(blocks):
            if block["type"] == "tool_reference":
                block["tool_name"] = names[index % len(names)]


def _choose_a_tool(body: Body, tools: list[Body]) -> None:
    choice = body.get("tool_choice") or {}
    if choice.get("type") in ("any", "tool"):
        if not tools:
            del body["tool_choice"]
        elif choice["type"] == "tool":
            choice["name"] = tools[-1]["name"]
        else:
            tools[0]["defer_loading"] = False


def _fill_turns(messages: list[Body]) -> None:
    for index, message in enumerate(messages):
        if not message["content"] and not (index == len(messages) - 1 and message["role"] == "assistant"):
            message["content"] = "something"


def _make_format_enforceable(body: Body) -> None:
    config = body.get("output_config") or {}
    if config.get("format") and body["messages"][-1]["role"] == "assistant":
        del config["format"]
    elif config.get("format"):
        config["format"]["schema"] = _SCHEMAS[2]
