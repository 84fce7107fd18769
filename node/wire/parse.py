"""Bytes to a request, or the first fault with its dotted path.

Decides what is refused and in which words: agents act on them. It alone makes `param` paths, since pydantic's hold
the names of union branches. Must not know models, engines or HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from node.wire.request import TAGS, MessagesRequest, Wire
from shared.errors import INVALID_REQUEST, LONGEST_PARAM, UNSUPPORTED_PARAMETER, ApiError, safe_text

MAX_MESSAGES = 10_000
MAX_BLOCKS = 20_000
MAX_STOPS = 256
MAX_STOP_CHARACTERS = 16_384
MAX_FIELDS = 64
MAX_BRACKETS = 500_000
"""Opening brackets in a body, inside strings too. Reading JSON holds the event loop: 3 million arrays took it 1 s."""

_EMPTY_IS_UNSET = ("tools", "mcp_servers")
"""Lists that agents send empty; this node does not take any other value of them yet."""
_THREAD_UNSUPPORTED = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
"""On these details the SDKs' tool runners send the whole conversation again, without `thread`."""

_WORDS = {  # where pydantic's speak of Python
    "missing": "Field required",
    "model_type": "Input should be an object",
    "model_attributes_type": "Input should be an object",
    "dict_type": "Input should be an object",
    "content_type": "Input should be a string or a list of content blocks",
    "too_short": "At least one item is required",
}


def parse_count(body: bytes) -> MessagesRequest:
    """Read a request for `count_tokens`, which is one for an answer but needs no `max_tokens`."""
    return _parse({"max_tokens": 1} | _load(body))


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
        raise _not_permitted("thread", details=_THREAD_UNSUPPORTED)
    _check_counts(fields)
    try:
        request = MessagesRequest.model_validate(fields)
    except ValidationError as error:
        raise _refusal(list_faults(error)[0]) from None
    if (unknown := _find_unknown(request)) is not None:
        raise _not_permitted(_path(unknown))
    _check_contents(request)
    return request


def _is_unset(name: str, value: Any) -> bool:
    return name in _EMPTY_IS_UNSET and value == []


def list_faults(error: ValidationError) -> list[ErrorDetails]:
    """Pydantic makes an object of every fault at once: the types fail fast, so that there are few."""
    return error.errors(include_url=False)


def _load(body: bytes) -> dict[str, Any]:
    if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
        raise ApiError(INVALID_REQUEST, f"the request body has more than {MAX_BRACKETS} opening brackets")
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ApiError(INVALID_REQUEST, f"the request body is not valid JSON ({where})") from None
    if not isinstance(fields, dict):
        raise ApiError(INVALID_REQUEST, "the request body must be a JSON object")
    return fields


def _check_counts(fields: dict[str, Any]) -> None:
    """Bounds that keep what follows short, before it begins."""
    messages, system, stops = (_items(fields.get(name)) for name in ("messages", "system", "stop_sequences"))
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    blocks = len(system) + sum(len(_items(content)) for content in contents)
    characters = sum(len(stop) for stop in stops if isinstance(stop, str))
    for name, count, most, of in (
        ("messages", len(messages), MAX_MESSAGES, "messages"),
        ("messages", blocks, MAX_BLOCKS, "content blocks"),
        ("stop_sequences", len(stops), MAX_STOPS, "sequences"),
        ("stop_sequences", characters, MAX_STOP_CHARACTERS, "characters in all"),
    ):
        if count > most:
            raise ApiError(INVALID_REQUEST, f"{name}: at most {most} {of}", param=name)
    if len(fields) > MAX_FIELDS:
        raise ApiError(INVALID_REQUEST, f"the request body has more than {MAX_FIELDS} fields")


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


def _refusal(fault: ErrorDetails) -> ApiError:
    path = _path([step for step in fault["loc"] if step not in TAGS])
    kind, value = fault["type"], fault["input"]
    if kind == "literal_error" and path.endswith((".type", ".keep")) and isinstance(value, str):
        expected = fault.get("ctx", {}).get("expected", "another value")
        return ApiError(UNSUPPORTED_PARAMETER, f"{path}: this node takes {expected} only", param=path)
    if fault["loc"][-1:] == ("#string",):
        kind = "content_type"
    return ApiError(INVALID_REQUEST, f"{path}: {_WORDS.get(kind, fault['msg'])}", param=path)


def _not_permitted(path: str, details: dict[str, Any] | None = None) -> ApiError:
    """Agents look for these words, and send the request again without the field."""
    message = f"{path}: Extra inputs are not permitted"
    return ApiError(UNSUPPORTED_PARAMETER, message, param=path, details=details)


def _path(steps: Sequence[str | int]) -> str:
    return safe_text(".".join(map(str, steps)), LONGEST_PARAM)


def _check_contents(request: MessagesRequest) -> None:
    """Only a trailing assistant turn, the start of the answer, may be empty."""
    last = len(request.messages) - 1
    for index, message in enumerate(request.messages):
        if not message.content and not (index == last and message.role == "assistant"):
            path = f"messages.{index}.content"
            raise ApiError(INVALID_REQUEST, f"{path}: must not be empty", param=path)
