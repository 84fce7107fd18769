"""Requests and their first fault: status, code, path and words."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.wire.parse import parse_request
from shared.errors import ApiError

VALID: dict[str, Any] = {
    "model": "b3os/test",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "Hi"}],
}


def refusal(**changes: Any) -> tuple[str, str | None, str]:
    with pytest.raises(ApiError) as caught:
        parse_request(orjson.dumps(VALID | changes))
    return caught.value.condition.code, caught.value.param, caught.value.message


def test_every_field_of_a_text_request_is_read() -> None:
    request = parse_request(
        orjson.dumps(
            VALID
            | {
                "system": [{"type": "text", "text": "Be brief."}],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                    {"role": "assistant", "content": "Hel"},
                ],
                "temperature": 0,
                "top_p": 0,
                "top_k": 1,
                "stop_sequences": ["x"],
                "stream": True,
            }
        )
    )
    assert (request.temperature, request.top_p, request.top_k, request.stream) == (0, 0, 1, True)
    assert request.messages[1].content == "Hel"


@pytest.mark.parametrize(
    "name",
    [
        "system",
        "stop_sequences",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "metadata",
        "service_tier",
    ],
)
def test_null_means_unset(name: str) -> None:
    assert parse_request(orjson.dumps(VALID | {name: None})) == parse_request(orjson.dumps(VALID))


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"model": "\\ud800"}', b"\xff", b'{"max_tokens": NaN}'])
def test_malformed_json_is_told_by_its_place(body: bytes) -> None:
    with pytest.raises(ApiError, match=r"not valid JSON \(line \d+, column \d+\)") as caught:
        parse_request(body)
    assert caught.value.condition.code == "invalid_request"


def test_json_that_is_no_object_is_refused() -> None:
    with pytest.raises(ApiError, match="must be a JSON object"):
        parse_request(b"[]")


def test_nesting_deeper_than_the_parser_goes_is_refused() -> None:
    with pytest.raises(ApiError, match="not valid JSON"):
        parse_request(b'{"messages": ' + b"[" * 100_000)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": "m" * 257}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 5.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": ["Hi"]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "messages.0.content.0.text"),
        ({"temperature": 1.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 1_000_001}, "top_k"),
        ({"stop_sequences": [""]}, "stop_sequences.0"),
        ({"stop_sequences": ["a" * 65_537]}, "stop_sequences"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_a_wrong_field_is_named_by_its_path(changes: dict[str, Any], param: str) -> None:
    code, path, message = refusal(**changes)
    assert (code, path) == ("invalid_request", param)
    assert message.startswith(f"{param}: ")


@pytest.mark.parametrize("name", ["model", "messages", "max_tokens"])
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_request(orjson.dumps({key: value for key, value in VALID.items() if key != name}))
    assert (caught.value.condition.code, caught.value.param) == ("invalid_request", name)
    assert caught.value.message == f"{name}: Field required"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"tools": []}, "tools"),
        ({"thinking": {"type": "disabled"}}, "thinking"),
        ({"metadata": {"user_id": "u"}}, "metadata"),
        ({"container": "c"}, "container"),
        ({"messages": [{"role": "user", "content": "Hi", "extra": 1}]}, "messages.0.extra"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}]},
            "messages.0.content.0.cache_control",
        ),
    ],
)
def test_a_field_that_is_not_taken_is_refused_in_the_words_that_agents_know(
    changes: dict[str, Any], param: str
) -> None:
    assert refusal(**changes) == ("unsupported_parameter", param, f"{param}: Extra inputs are not permitted")


def test_a_block_that_is_not_text_is_refused_by_its_type() -> None:
    code, param, _ = refusal(messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}])
    assert (code, param) == ("unsupported_parameter", "messages.0.content.0.type")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(
    ["model", "messages", "max_tokens", "system", "stop_sequences", "role", "content", "type", "text"]
)


@given(st.dictionaries(names | st.text(max_size=5), json_values, max_size=6))
def test_any_body_is_a_request_or_a_refusal_of_ours(changes: dict[str, Any]) -> None:
    with contextlib.suppress(ApiError):
        parse_request(orjson.dumps(VALID | changes))
