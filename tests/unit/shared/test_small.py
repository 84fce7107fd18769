"""Ids, timing, error bodies and log lines."""

from __future__ import annotations

import json
import logging
import re

import pytest

from shared import errors
from shared.base32 import ALPHABET, encode_base32
from shared.errors import ApiError, anthropic_body, openai_body, problem_body
from shared.ids import REQUEST_ID, new_message_id, new_request_id
from shared.log import JsonFormatter, request_id_var
from shared.timing import Phases

CONDITIONS = {name: value for name, value in vars(errors).items() if isinstance(value, errors.Condition)}


def test_request_ids_sort_by_time_and_follow_the_published_pattern() -> None:
    ids = [new_request_id(now_ms) for now_ms in (1, 2, 2**41)]
    assert ids == sorted(ids)
    assert all(REQUEST_ID.fullmatch(text) for text in [*ids, new_request_id()])


def test_message_ids_have_thirty_two_hex_characters() -> None:
    assert re.fullmatch(r"msg_[0-9a-f]{32}", new_message_id())


def test_base32_is_crockford_s_most_significant_first() -> None:
    assert encode_base32(0b00001_11111, 2) == "1z"
    assert set("ilou") & set(ALPHABET) == set()
    with pytest.raises(ValueError, match="does not fit"):
        encode_base32(1024, 2)


def test_phases_of_the_edge_come_first_and_total_is_its_own() -> None:
    now = iter([0.0, 0.0, 0.001, 0.010])
    phases = Phases(lambda: next(now))
    with phases.measure("edge_auth"):
        pass
    header = phases.header(upstream="parse;dur=0.10, ttft;dur=3.00, total;dur=9.99", with_total=True)
    assert header == "edge_auth;dur=1.00, parse;dur=0.10, ttft;dur=3.00, total;dur=10.00"


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_condition_has_the_three_bodies_of_the_contract(name: str) -> None:
    error = ApiError(CONDITIONS[name], "Why.", param="a.0.b", details={"error_code": "x"})
    anthropic = anthropic_body(error, "req_1")
    assert anthropic["error"]["type"] in {
        "invalid_request_error", "authentication_error", "billing_error", "permission_error", "not_found_error",
        "request_too_large", "rate_limit_error", "api_error", "timeout_error", "overloaded_error",
    }  # fmt: skip
    assert anthropic["b3os"] == {"code": error.condition.code, "param": "a.0.b"}
    assert openai_body(error)["error"]["type"] in {
        "invalid_request_error", "authentication_error", "permission_error", "rate_limit_error", "server_error",
    }  # fmt: skip
    assert problem_body(error, "req_1")["instance"] == "req_1"


def test_only_what_can_never_succeed_says_so() -> None:
    assert errors.UNAUTHORIZED.is_final
    assert errors.FORBIDDEN.is_final
    assert not errors.BACKEND_UNAVAILABLE.is_final
    assert not errors.REQUEST_TIMEOUT.is_final
    assert ApiError(errors.BACKEND_UNAVAILABLE, "x", retry_after_s=0).response_headers() == {"Retry-After": "1"}


def test_a_log_line_is_json_with_the_request_id_and_the_facts() -> None:
    record = logging.LogRecord("b3os", logging.INFO, "f", 1, "request", None, None)
    record.facts = {"status": 200}
    token = request_id_var.set("req_1")
    try:
        line = json.loads(JsonFormatter().format(record))
    finally:
        request_id_var.reset(token)
    assert line["request_id"] == "req_1"
    assert (line["message"], line["status"], line["level"]) == ("request", 200, "info")
