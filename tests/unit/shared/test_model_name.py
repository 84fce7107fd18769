"""Which model a request names, by a look at its bytes."""

from __future__ import annotations

import json

import pytest

from shared.model_name import WINDOW_BYTES, look_for_models, read_model

CALL = {"type": "tool_use", "id": "t", "name": "ask", "input": {"model": "inner"}}
TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [CALL]}]
LONG = "x" * 3 * WINDOW_BYTES


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "messages": TURNS},
        {"messages": TURNS, "model": "m"},
        {"max_tokens": 1, "messages": [*TURNS, {"role": "user", "content": LONG}], "model": "m", "tools": []},
        {"model": "m", "messages": [{"role": "user", "content": LONG}, *TURNS]},
        {"messages": [{"role": "user", "content": LONG}], "model": "m", "tools": [{"description": LONG}]},
        {"messages": TURNS[:1], "tools": [{"input_schema": {"properties": {"model": {"const": "c"}}}}], "model": "m"},
    ],
    ids=range(6),
)
def test_the_request_s_own_is_found_among_those_of_calls_wherever_it_stands(body: dict[str, object]) -> None:
    for raw in (json.dumps(body), json.dumps(body, separators=(",", ":"))):
        assert look_for_models(raw.encode())[0] == "m"
        assert read_model(raw.encode()) == "m"


def test_a_name_that_no_look_finds_or_that_is_unclear_is_read_from_a_body_that_is_short() -> None:
    hidden = b'{"mod\\u0065l":"m","messages":[{"model":"inner"}]}'
    assert read_model(hidden.replace(b'"model"', b'"else"')) == "m"
    assert read_model(b'{"model":"a","model":"m","messages":[]}') == "m"  # as JSON readers have it
    assert read_model(b'{"model":"b3os\\/m"}') == "b3os/m"
    assert read_model(hidden + b" " * 3 * WINDOW_BYTES) == "inner"  # and not from a long one


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b'{"model":3}', b"\xff", b"[" * 200_000, b'"model":3,' * 50_000]
)
def test_no_body_is_a_fault(raw: bytes) -> None:
    assert look_for_models(raw) == ()
    assert read_model(raw) is None
