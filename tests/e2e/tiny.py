"""The tiny model's prompts as a caller of the Messages API would send them."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

from PIL import Image

from tests.models.prompts import Fixed

MAX_TOKENS = 3000
LEAST_BUDGET_TOKENS = 1024  # of the contract; smaller ones can't be asked for


def request_of(fixed: Fixed) -> dict[str, Any]:
    """The fields of the request."""
    colours = iter(fixed.colours)
    turns = list(_turns(fixed.messages, colours))
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


def picture(colour: str) -> dict[str, Any]:
    """An image block of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", (80, 60), colour).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def _turns(messages: list[dict[str, Any]], colours: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Results and what the user says after them are one turn."""
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for message in [*messages, {"role": "end", "content": ""}]:
        if message["role"] == "tool":
            results.append(_result(calls.pop(0)["id"], message["content"]))
            continue
        blocks = [picture(next(colours)) if part["type"] == "image" else part for part in _parts(message["content"])]
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
