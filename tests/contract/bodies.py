"""What requests of these tests are made of."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "d", "input_schema": CITY}
TIME = {"name": "get_time", "input_schema": {"type": "object"}}
USER = {"role": "user", "content": "Hi"}


def picture(kind: str = "PNG") -> str:
    """A small image file in base64."""
    file = io.BytesIO()
    Image.new("RGB", (3, 2), "red").save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def image(data: str | None = None, media_type: str = "image/png") -> dict[str, Any]:
    """An image block."""
    source = {"type": "base64", "media_type": media_type, "data": picture() if data is None else data}
    return {"type": "image", "source": source}


def remote_image(url: str) -> dict[str, Any]:
    """An image block that the node would have to fetch."""
    return {"type": "image", "source": {"type": "url", "url": url}}


def call(name: str = "a", tool: str = "get_weather") -> dict[str, Any]:
    """An answer that called a tool; `name` is the call's id."""
    return {"role": "assistant", "content": [{"type": "tool_use", "id": name, "name": tool, "input": {}}]}


def result(name: str = "a", **fields: Any) -> dict[str, Any]:
    """A turn with the result of a call."""
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, **fields}]}
