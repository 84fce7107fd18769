"""The tiny model's prompts as a caller of the Messages API would send them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from tests.integration.egress.behaviours import picture_of
from tests.models.prompts import Fixed

Block = dict[str, Any]
MAX_TOKENS = 3000
LEAST_BUDGET_TOKENS = 1024  # of the contract; smaller ones can't be asked for


def picture(colour: str) -> Block:
    """An image block of one colour."""
    data = base64.b64encode(picture_of(colour)).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def request_of(fixed: Fixed, show: Callable[[str], Block] = picture) -> dict[str, Any]:
    """The fields of the request; `show` makes the image block of a colour."""
    turns = list(_turns(fixed.messages, map(show, fixed.colours)))
    if fixed.prefill:
        turns.append({"role": "assistant", "content": fixed.prefill})
    fields: dict[str, Any] = {"messages": turns, "max_tokens": MAX_TOKENS}
    if fixed.messages[0]["role"] == "system":
        fields["system"] = fixed.messages[0]["content"]
    if fixed.tools:
        fields["tools"] = [
            {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in fixed.tools
        ]
    if fixed.budget is not None:
        fields["thinking"] = {"type": "enabled", "budget_tokens": fixed.budget}
    elif fixed.thought is not None:
        fields["thinking"] = {"type": "adaptive"}
    return fields


def _turns(messages: list[dict[str, Any]], pictures: Iterator[Block]) -> Iterator[dict[str, Any]]:
    """Results and what the user says after them are one turn."""
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for message in [*messages, {"role": "end", "content": ""}]:
        if message["role"] == "tool":
            results.append(_result(calls.pop(0)["id"], message["content"]))
            continue
        blocks = [next(pictures) if part["type"] == "image" else part for part in _parts(message["content"])]
        for result in results:
            if result["content"] == "(image follows)":
                result["content"] = [blocks.pop(0)]
        calls = [_call(number, call["function"]) for number, call in enumerate(message.get("tool_calls", ()))]
        if results and message["role"] != "user":
            yield {"role": "user", "content": results}
            results = []
        if message["role"] in ("user", "assistant"):
            yield {"role": message["role"], "content": [*results, *blocks, *calls]}
            results = []


def _call(number: int, function: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"call_{number}", "name": function["name"], "input": function["arguments"]}


def _result(call_id: str, text: str) -> dict[str, Any]:
    fields = {"content": text.removeprefix("Error: "), "is_error": text.startswith("Error: ")}
    return {"type": "tool_result", "tool_use_id": call_id, **fields}


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)
