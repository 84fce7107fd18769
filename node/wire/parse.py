"""Bytes to a request, or the first fault with its dotted path.

Decides the order of the checks: bounds that keep the others short, then each field, then how they belong together.
Must not know models, engines or HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from node.wire.faults import build_refusal, join_path, not_permitted
from node.wire.request import MessagesRequest, Wire
from node.wire.rules import check_rules
from shared.errors import INVALID_REQUEST, ApiError

MAX_MESSAGES = 10_000
MAX_BLOCKS = 20_000
MAX_TOOLS = 1000
MAX_STOPS = 256
MAX_STOP_CHARACTERS = 16_384
MAX_FIELDS = 64
MAX_VALUES = 150_000
"""Of JSON, at every level. To read it is one call that holds the interpreter: so many keys take it 20 ms."""
_SLICE_BYTES = 64 << 10

_NO_LIMIT = 2**53
_EMPTY_IS_UNSET = ("tools", "mcp_servers")
"""Lists that agents send empty; servers are refused otherwise."""
_THREAD_UNSUPPORTED = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
"""On these details the SDKs' tool runners send the whole conversation again, without `thread`."""


def parse_count(body: bytes) -> MessagesRequest:
    """Read a request for `count_tokens`, which is one for an answer but needs no `max_tokens`."""
    fields = _load(body)
    if fields.get("max_tokens") is None:
        fields["max_tokens"] = _NO_LIMIT
    return _parse(fields)


def parse_request(body: bytes) -> MessagesRequest:
    """Read a request.

    Raises:
        ApiError: `INVALID_REQUEST` for malformed JSON and wrong or missing fields, `UNSUPPORTED_PARAMETER` for
            fields and block types that this node does not take; `param` holds the path.
    """
    return _parse(_load(body))


def _parse(fields: dict[str, Any]) -> MessagesRequest:
    fields = {name: value for name, value in fields.items() if value is not None and not _is_unset(name, value)}
    if "thread" in fields:
        raise not_permitted("thread", details=_THREAD_UNSUPPORTED)
    _check_counts(fields)
    try:
        request = MessagesRequest.model_validate(fields)
    except ValidationError as error:
        raise build_refusal(list_faults(error)[0]) from None
    if (unknown := _find_unknown(request)) is not None:
        raise not_permitted(join_path(unknown))
    check_rules(request)
    return request


def _is_unset(name: str, value: Any) -> bool:
    return name in _EMPTY_IS_UNSET and value == []


def list_faults(error: ValidationError) -> list[ErrorDetails]:
    """Pydantic makes an object of every fault at once: the types fail fast, so that there are few."""
    return error.errors(include_url=False)


def _load(body: bytes) -> dict[str, Any]:
    if _count_marks(body) > MAX_VALUES and count_values(body) > MAX_VALUES:
        raise ApiError(INVALID_REQUEST, f"the request body has more than {MAX_VALUES} JSON values")
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ApiError(INVALID_REQUEST, f"the request body is not valid JSON ({where})") from None
    if not isinstance(fields, dict):
        raise ApiError(INVALID_REQUEST, "the request body must be a JSON object")
    return fields


def count_values(body: bytes) -> int:
    """How many values JSON text has inside its outermost one: each has a comma or an opening bracket before it.

    What is empty counts twice, and what stands in strings not at all. Goes by slices, so that no step is long.
    """
    count, start, is_inside = 0, 0, False
    while part := body[start : start + _SLICE_BYTES]:
        if (len(part) - len(part.rstrip(b"\\"))) % 2:  # half an escape
            part += body[start + len(part) : start + len(part) + 1]
        start += len(part)
        pieces = part.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        count += _count_marks(b"".join(pieces[is_inside::2]))
        is_inside ^= len(pieces) % 2 == 0
    return count


def _count_marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _check_counts(fields: dict[str, Any]) -> None:
    """Bounds that keep what follows short, before it begins."""
    messages, system, stops, tools = (
        _items(fields.get(name)) for name in ("messages", "system", "stop_sequences", "tools")
    )
    blocks = len(system) + sum(1 for _ in _walk_blocks(messages))
    characters = sum(len(stop) for stop in stops if isinstance(stop, str))
    for name, count, most, of in (
        ("messages", len(messages), MAX_MESSAGES, "messages"),
        ("messages", blocks, MAX_BLOCKS, "content blocks"),
        ("tools", len(tools), MAX_TOOLS, "tools"),
        ("stop_sequences", len(stops), MAX_STOPS, "sequences"),
        ("stop_sequences", characters, MAX_STOP_CHARACTERS, "characters in all"),
    ):
        if count > most:
            raise ApiError(INVALID_REQUEST, f"{name}: at most {most} {of}", param=name)
    if len(fields) > MAX_FIELDS:
        raise ApiError(INVALID_REQUEST, f"the request body has more than {MAX_FIELDS} fields")


def _walk_blocks(messages: list[Any]) -> Iterator[Any]:
    """Every content block, those inside tool results included."""
    for message in messages:
        for block in _items(message.get("content")) if isinstance(message, dict) else ():
            yield block
            yield from _items(block.get("content")) if isinstance(block, dict) else ()


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _find_unknown(value: Any) -> list[str | int] | None:
    """The path of the first field that no type knows; null is no value, here as everywhere.

    Pydantic could refuse these itself, but would make an error of each before we see the first.
    """
    if isinstance(value, Wire):
        for name, extra in (value.model_extra or {}).items():
            if extra is not None:
                return [name]
        steps: Iterable[tuple[str | int, Any]] = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, list):
        steps = enumerate(value)
    else:
        return None
    for step, inner in steps:
        if (found := _find_unknown(inner)) is not None:
            return [step, *found]
    return None
