"""The whole message as the accumulation of its events, so that both forms of an answer are one code path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from node.translate.stream import Event

_TARGETS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def accumulate(events: Iterable[Event]) -> dict[str, Any]:
    """Build the body of a non-streamed answer from the events of a complete stream.

    A tool call that was cut before its input was whole is left out: an invented `{}` could be run. One that is whole
    keeps its input as the text that it was written as, as a stream does: no number loses digits, and no writer has to
    go down all its levels.
    """
    message: dict[str, Any] = {}
    parts: dict[int, list[str]] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = dict(event["message"], content=[])
            case "content_block_start":
                message["content"].append(dict(event["content_block"]))
            case "content_block_delta":
                _add(message["content"][event["index"]], parts.setdefault(event["index"], []), event["delta"])
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"], "b3os": event["b3os"]}
            case _:  # content_block_stop and message_stop add nothing
                pass
    message["content"] = [
        block for index, block in enumerate(message["content"]) if _fill(block, parts.get(index, []))
    ]
    if not message["content"]:  # SDKs read content[0]
        message["content"] = [{"type": "text", "text": ""}]
    return message


def _add(block: dict[str, Any], parts: list[str], delta: dict[str, Any]) -> None:
    if delta["type"] == "input_json_delta":
        parts.append(delta["partial_json"])
    elif delta["type"] == "signature_delta":
        block["signature"] = delta["signature"]
    else:
        parts.append(delta[_TARGETS[delta["type"]]])


def _fill(block: dict[str, Any], parts: list[str]) -> bool:
    """Join the parts into the block; False when it must not be shown."""
    if block["type"] != "tool_use":
        block[block["type"]] = "".join(parts)
        return True
    text = "".join(parts)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    block["input"] = orjson.Fragment(text)
    return True
