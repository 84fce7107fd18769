"""Whatever the body: an answer, or a refusal of the contract with an honest `param`. Never a fault of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.mutations import acts, is_honest, mutate, places, recorded_bodies, rich_bodies, schemas, values
from tests.contract.service import COUNT, MESSAGES, Answer, Service

MODEL = "b3os/scripted"
RICH = [body | {"model": MODEL} for body in rich_bodies()]
RECORDED = recorded_bodies(MODEL)
REFUSALS = {
    "invalid_request": (400, "invalid_request_error"),
    "unsupported_parameter": (400, "invalid_request_error"),
    "unsupported_media_type": (400, "invalid_request_error"),
    "context_length_exceeded": (400, "invalid_request_error"),
    "egress_denied": (403, "permission_error"),
    "model_not_available": (404, "not_found_error"),
}
changes = st.lists(st.tuples(places, acts), min_size=1, max_size=3)


def check(answer: Answer, body: Any, path: str = MESSAGES) -> None:
    """Every promise that holds for any body; the headers' were checked when it came."""
    if answer.status == 200:
        if path == COUNT:
            assert answer.message["input_tokens"] >= 0
        elif isinstance(body, dict) and body.get("stream"):
            assert answer.events
        else:
            assert answer.message["content"]
        return
    status, code, kind, param = answer.refusal()
    assert REFUSALS.get(code) == (status, kind), json.dumps(body)
    if param is not None:
        assert is_honest(body, param), f"{param} is not in {json.dumps(body)}"
        assert param in answer.words or code in ("unsupported_parameter", "model_not_available")


def ask(service: Service, body: Any, path: str = MESSAGES) -> None:
    check(service.send(json.dumps(body).encode(), path), body, path)


@pytest.mark.parametrize("body", RICH)
def test_the_bodies_that_are_damaged_were_whole(service: Service, body: dict[str, Any]) -> None:
    assert service.post(body).status == 200


@settings(deadline=None)
@given(st.sampled_from(RICH), changes, st.sampled_from([MESSAGES, MESSAGES, COUNT]))
def test_a_rich_body_that_was_damaged_anywhere(
    service: Service, body: dict[str, Any], changes: list[Any], path: str
) -> None:
    ask(service, mutate(body, changes), path)


@settings(deadline=None)
@given(st.sampled_from(RECORDED), changes)
def test_a_client_s_body_that_was_damaged_anywhere(
    service: Service, body: dict[str, Any], changes: list[Any]
) -> None:
    ask(service, mutate(body, changes))


@settings(deadline=None)
@given(
    st.sampled_from(["messages", "system", "tools", "tool_choice", "thinking", "output_config", "stop_sequences"]),
    values,
)
def test_any_value_of_any_field(service: Service, name: str, value: Any) -> None:
    ask(service, {"model": MODEL, "max_tokens": 2000, "messages": [{"role": "user", "content": "Hi"}], name: value})


@settings(deadline=None)
@given(schemas, st.sampled_from(["answer", "forced", "strict", "free"]))
def test_any_schema_of_an_answer_or_a_tool(service: Service, schema: Any, use: str) -> None:
    fields: dict[str, Any] = {"tools": [{"name": "f", "input_schema": schema, "strict": use == "strict"}]}
    if use == "answer":
        fields = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    elif use == "forced":
        fields["tool_choice"] = {"type": "any"}
    ask(service, service.body(**fields))


@settings(deadline=None)
@given(values)
def test_any_json(service: Service, body: Any) -> None:
    ask(service, body)


@settings(deadline=None)
@given(st.binary(max_size=40) | st.tuples(st.sampled_from(RICH), st.integers(0, 3000), st.binary(max_size=3)))
def test_any_bytes(service: Service, raw: Any) -> None:
    """Bytes, or a body in which some were put over others."""
    if isinstance(raw, tuple):
        body, place, patch = raw
        whole = json.dumps(body).encode()
        raw = whole[: place % len(whole)] + patch + whole[place % len(whole) + len(patch) + 1 :]
    answer = service.send(raw)
    try:
        body = json.loads(raw)
    except ValueError:
        assert answer.refusal()[:2] == (400, "invalid_request")
    else:
        check(answer, body)
