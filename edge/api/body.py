"""Read the JSON body of a route that is not inference.

Decides what a caller hears of a body that is wrong: the path of the field, in the words that the node has too. Must
not know any route.
"""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import parse_qsl

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from edge.api.gate import PLACE
from shared.errors import BODY_TOO_LARGE, INVALID_REQUEST, LONGEST_PARAM, NOT_JSON, ApiError, safe_text
from shared.web import read_body

MAX_BYTES = 65_536
MAX_LEVELS = 32
"""Of objects and lists in each other. What is deeper than a few is nobody's, and Python's own limit is a 500."""
_UNSEEN = r"\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
PLAIN_TEXT = f"^[^{_UNSEEN}]+$"
"""What a person reads holds nothing that moves a terminal's text, or that he can't see."""
_WORDS = {  # where pydantic's speak of Python
    "missing": "Field required",
    "extra_forbidden": "Extra inputs are not permitted",
    "model_type": "Input should be an object",
    "model_attributes_type": "Input should be an object",
    "tuple_type": "Input should be a list",
    "datetime_from_date_parsing": "Input should be a time like 2030-01-31T12:00:00Z",
    "datetime_parsing": "Input should be a time like 2030-01-31T12:00:00Z",
    "datetime_type": "Input should be a time like 2030-01-31T12:00:00Z",
    "timezone_aware": "Input should be a time with its offset, like 2030-01-31T12:00:00Z",
}


class Body(BaseModel):
    """A body: no field is ignored, and none is made to fit."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


B = TypeVar("B", bound=Body)


def require_json(request: web.Request) -> None:
    """Demand the media type; a form of another site can't send it unasked.

    Raises:
        ApiError: `NOT_JSON`.
    """
    if request.content_type != "application/json":
        raise ApiError(NOT_JSON, "send the body as Content-Type: application/json")


async def read_json(request: web.Request, kind: type[B]) -> B:
    """The body as a `kind`. Null is no value: a field that is null is not there.

    Raises:
        ApiError: the body is not JSON, too large, or not a `kind`; or `RATE_LIMITED`: too many others run meanwhile.
    """
    require_json(request)
    raw = await _receive(request)
    try:
        value = orjson.loads(raw)
    except ValueError:
        raise ApiError(INVALID_REQUEST, "the body is not valid JSON") from None
    if not isinstance(value, dict):
        raise ApiError(INVALID_REQUEST, "the body must be a JSON object")
    if _is_deeper(value, MAX_LEVELS):
        raise ApiError(INVALID_REQUEST, f"the body has more than {MAX_LEVELS} levels")
    return _build(kind, value)


async def read_form_or_json(request: web.Request, kind: type[B]) -> B:
    """The same for what OAuth 2.0 sends as a form (RFC 6749 §3.2): it carries no cookie's rights, whoever sends it.

    Raises:
        ApiError: as `read_json`.
    """
    if request.content_type != "application/x-www-form-urlencoded":
        return await read_json(request, kind)
    raw = await _receive(request)
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=False, max_num_fields=20, errors="strict")
    except ValueError:
        raise ApiError(INVALID_REQUEST, "the body is not a form") from None
    if len(dict(pairs)) != len(pairs):
        raise ApiError(INVALID_REQUEST, "a field of the form is there twice")
    return _build(kind, dict(pairs))


async def _receive(request: web.Request) -> bytes:
    """A body may take its sender half a minute, in which he holds no place of those who share his."""
    with request[PLACE].left():
        return await read_body(request, MAX_BYTES, _too_large)


def _build(kind: type[B], value: dict[str, Any]) -> B:
    try:
        return kind.model_validate_json(orjson.dumps(_without_nulls(value)))
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False, include_context=False)[0]) from None


def invalid(param: str, words: str) -> ApiError:
    """A field that is there and wrong."""
    return ApiError(INVALID_REQUEST, f"{param}: {words}", param=param)


def _too_large(announced_bytes: int | None) -> ApiError:
    size = "" if announced_bytes is None else f" of {announced_bytes} bytes"
    return ApiError(BODY_TOO_LARGE, f"the request body{size} is over the limit of {MAX_BYTES} bytes")


def _is_deeper(value: Any, levels: int) -> bool:
    """Level by level, so that no depth of it is one of ours."""
    here = [value]
    for _ in range(levels):
        here = [
            inner
            for outer in here
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(here)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return value


def _refusal(fault: ErrorDetails) -> ApiError:
    path = safe_text(".".join(map(str, fault["loc"])), LONGEST_PARAM)
    words = _WORDS.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    return invalid(path, words)
