"""The table "Bounds" of docs/wire.md: the most that is taken is taken, and one more is refused by its path."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from node.wire.parse import count_values
from tests.contract.bodies import USER, image
from tests.contract.service import Service

TEXT = {"type": "text", "text": "x"}


def tool(index: int = 0, schema: Any = None) -> dict[str, Any]:
    return {"name": f"t{index}", "input_schema": schema or {"type": "object"}}


def deep(levels: int) -> dict[str, Any]:
    """A schema of so many levels."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels // 2):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def padded(size_bytes: int) -> dict[str, Any]:
    """A schema of so many bytes."""
    empty = json.dumps({"type": "object", "description": ""}, separators=(",", ":"))
    return {"type": "object", "description": "x" * (size_bytes - len(empty))}


def wide_png(width: int, height: int) -> str:
    """Little data, many pixels: one bit each."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    head = width.to_bytes(4) + height.to_bytes(4) + bytes((1, 0, 0, 0, 0))
    rows = zlib.compress(bytes(1 + (width + 7) // 8) * height, 9)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def test_bounds_bytes_of_a_body(service: Service) -> None:
    body = json.dumps(service.body()).encode()
    assert service.send(body.ljust(10_485_760)).status == 200
    assert service.send(body.ljust(10_485_761)).refusal()[1] == "payload_too_large"


def test_bounds_messages(service: Service) -> None:
    assert service.ask(messages=[USER] * 10_000).status == 200
    service.refused("messages", messages=[USER] * 10_001)


def test_bounds_content_blocks(service: Service) -> None:
    inner = [TEXT] * 9_998
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "t0", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": inner}]}
    outer = {"role": "user", "content": [TEXT] * 10_000}
    assert service.ask(messages=[outer, call, result]).status == 200
    service.refused("messages", messages=[outer, call, result], system=[TEXT])


def test_bounds_tools(service: Service) -> None:
    assert service.ask(tools=[tool(index) for index in range(1000)]).status == 200
    service.refused("tools", tools=[tool(index) for index in range(1001)])


def test_bounds_fields(service: Service) -> None:
    answer = service.ask(**{f"x{index}": 1 for index in range(62)})
    assert answer.refusal()[:2] == (400, "invalid_request")
    assert "64 fields" in answer.words


def test_bounds_stop_sequences(service: Service) -> None:
    assert service.ask(stop_sequences=["x" * 64] * 256).status == 200
    service.refused("stop_sequences", stop_sequences=["x"] * 257)
    service.refused("stop_sequences", stop_sequences=["x" * 16_384, "y"])


def test_bounds_json_values(service: Service) -> None:
    user = {"role": "user", "content": '",[{' * 150_000}  # in a string they are none
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {"a": []}}
    result = {"type": "tool_result", "tool_use_id": "a"}
    messages = [user, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    others = count_values(json.dumps(service.body(messages=messages)).encode())
    call["input"] = {"a": [1] * (150_000 - others + 1)}
    assert service.ask(messages=messages).status == 200
    call["input"] = {"a": [1] * (150_000 - others + 2)}
    assert "150000 JSON values" in service.ask(messages=messages).words


def test_bounds_bytes_of_a_schema(service: Service) -> None:
    assert service.ask(tools=[tool(schema=padded(65_536))]).status == 200
    service.refused("tools.0.input_schema", tools=[tool(schema=padded(65_537))])


def test_bounds_levels_of_a_schema(service: Service) -> None:
    assert service.ask(tools=[tool(schema=deep(31))]).status == 200
    service.refused("tools.0.input_schema", tools=[tool(schema=deep(33))])


def test_bounds_images(service: Service) -> None:
    assert service.ask(messages=[{"role": "user", "content": [image()] * 20}]).status == 200
    service.refused("messages.0.content.20", messages=[{"role": "user", "content": [image()] * 21}])


def test_bounds_pixels_of_an_image(service: Service) -> None:
    good, bad = ({"role": "user", "content": [image(wide_png(side, 5000))]} for side in (5000, 5001))
    assert service.ask(messages=[good]).status == 200
    service.refused("messages.0.content.0.source.data", messages=[bad])
