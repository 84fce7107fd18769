"""Bytes to a request, or the first fault with its dotted path.

Decides what is refused and in which words: agents act on them. It alone makes `param` paths, since pydantic's hold
the names of union branches. Must not know models, engines or HTTP.
"""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from node.wire.request import TAG, MessagesRequest
from shared.errors import INVALID_REQUEST, UNSUPPORTED_PARAMETER, ApiError

MAX_STOP_CHARACTERS = 65_536
_NULLABLE = ("metadata", "output_config", "service_tier", "thinking", "tool_choice", "tools")
"""Fields of the seed that may be null, which means unset; this node does not take any other value of them yet."""


def parse_request(body: bytes) -> MessagesRequest:
    """Read a request.

    Raises:
        ApiError: `INVALID_REQUEST` for malformed JSON and wrong or missing fields, `UNSUPPORTED_PARAMETER` for
            fields and block types that this node does not take; `param` holds the path.
    """
    fields = _load(body)
    for name in _NULLABLE:
        if name in fields and fields[name] is None:
            del fields[name]
    try:
        request = MessagesRequest.model_validate(fields)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False, include_context=False)[0]) from None
    _check_contents(request)
    _check_stops(request)
    return request


def _load(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ApiError(INVALID_REQUEST, f"the request body is not valid JSON ({where})") from None
    if not isinstance(fields, dict):
        raise ApiError(INVALID_REQUEST, "the request body must be a JSON object")
    return fields


def _refusal(fault: ErrorDetails) -> ApiError:
    path = ".".join(str(step) for step in fault["loc"] if not str(step).startswith(TAG))
    kind, value = fault["type"], fault["input"]
    if kind == "extra_forbidden":
        return ApiError(UNSUPPORTED_PARAMETER, f"{path}: Extra inputs are not permitted", param=path)
    if kind == "literal_error" and path.endswith(".type") and isinstance(value, str):
        return ApiError(UNSUPPORTED_PARAMETER, f"{path}: this node takes text blocks only", param=path)
    message = "Field required" if kind == "missing" else fault["msg"]
    return ApiError(INVALID_REQUEST, f"{path}: {message}", param=path)


def _check_contents(request: MessagesRequest) -> None:
    """Only a trailing assistant turn, the start of the answer, may be empty."""
    last = len(request.messages) - 1
    for index, message in enumerate(request.messages):
        if not message.content and not (index == last and message.role == "assistant"):
            path = f"messages.{index}.content"
            raise ApiError(INVALID_REQUEST, f"{path}: must not be empty", param=path)


def _check_stops(request: MessagesRequest) -> None:
    if sum(map(len, request.stop_sequences or ())) > MAX_STOP_CHARACTERS:
        message = f"stop_sequences: at most {MAX_STOP_CHARACTERS} characters in all"
        raise ApiError(INVALID_REQUEST, message, param="stop_sequences")
