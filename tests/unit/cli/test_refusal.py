"""Every shape of refusal is one sentence and one code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared import errors
from shared.cli.user.failure import FAILED, NOT_LOGGED_IN, TRY_LATER
from shared.cli.user.refusal import parse_error_event, parse_refusal
from shared.errors import ApiError, Condition, anthropic_body, openai_body, problem_body

ID = "req_01m5t4yg394wegr3j4y01qb363"
CONDITIONS = {name: value for name, value in vars(errors).items() if isinstance(value, Condition)}


@pytest.mark.parametrize("shape", ["anthropic", "openai", "problem"])
@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=list(CONDITIONS))
def test_every_condition_is_told_in_every_shape_with_its_id(condition: Condition, shape: str) -> None:
    error = ApiError(condition, "so it is")
    bodies = {
        "anthropic": anthropic_body(error, ID),
        "openai": openai_body(error),
        "problem": problem_body(error, ID),
    }
    refusal = parse_refusal(condition.status, {"request-id": ID}, json.dumps(bodies[shape]).encode())
    assert refusal.code == condition.code
    failure = refusal.as_failure()
    assert failure.message.startswith("so it is")
    assert failure.message.endswith(f"({ID})")
    expected = {401: NOT_LOGGED_IN, 429: TRY_LATER, 503: TRY_LATER}.get(condition.status, FAILED)
    assert failure.exit_code == expected


def test_the_id_is_not_said_twice() -> None:
    body = {"type": "error", "error": {"type": "api_error", "message": f"internal error (request {ID})"}}
    assert parse_refusal(500, {"request-id": ID}, json.dumps(body).encode()).as_failure().message.count(ID) == 1


@pytest.mark.parametrize(("said", "told"), [("7", "try again in 7 s"), ("Wed, 21 Oct", None), ("9" * 9, None)])
def test_the_seconds_to_wait_are_told(said: str, told: str | None) -> None:
    message = parse_refusal(429, {"retry-after": said}, b"{}").as_failure().message
    assert ("try again" in message) == (told is not None)
    assert told is None or told in message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html><h1>Bad gateway</h1>",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"error": null}',
        b'{"error": []}',
        b'{"error": {"message": 5, "type": {}, "code": []}}',
        b'{"detail": {"a": 1}, "title": null, "instance": 3}',
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("status", [301, 400, 404, 502, 599])
def test_a_body_without_a_reason_leaves_the_status(raw: bytes, status: int) -> None:
    message = parse_refusal(status, {"location": "https://elsewhere.example"}, raw).as_failure().message
    assert {301: "redirects to https://elsewhere.example", 404: "no such route"}.get(status, str(status)) in message


def test_a_reason_moves_no_terminal_and_tells_no_key() -> None:
    reason = "\x1b[2J\nkey b3os_sk_" + "a" * 32 + "_bbbbbbb" + "x" * 10_000
    message = parse_refusal(400, {"request-id": "\x1b]0;x\x07"}, json.dumps({"detail": reason}).encode()).as_failure()
    assert message.message.startswith("␛[2J key b3os_sk_…")
    assert "\n" not in message.message
    assert "\x07" not in message.message
    assert len(message.message) < 3000


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"type": "overloaded_error", "message": "busy"}, TRY_LATER),
        ({"type": "rate_limit_error", "message": "busy"}, TRY_LATER),
        ({"type": "authentication_error", "message": "busy"}, NOT_LOGGED_IN),
        ({"type": "api_error", "message": "busy"}, FAILED),
        ({"type": 3}, FAILED),
        (None, FAILED),
    ],
)
def test_an_error_event_has_the_code_of_its_type(error: Any, code: int) -> None:
    failure = parse_error_event({"type": "error", "error": error}, ID).as_failure()
    assert failure.exit_code == code
    assert ID in failure.message
