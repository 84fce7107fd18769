"""The table of words in "Refusals" of docs/wire.md: agents act on them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.bodies import TIME, USER
from tests.contract.service import Service


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"fallbacks": []}, "fallbacks"),
        ({"metadata": {"tenant": "x"}}, "metadata.tenant"),
        ({"messages": [USER | {"name": "Bob"}]}, "messages.0.name"),
        ({"tools": [TIME, {**TIME, "name": "b", "allowed_callers": ["direct"]}]}, "tools.1.allowed_callers"),
        ({"tools": [TIME | {"input_examples": [{}]}]}, "tools.0.input_examples"),
        ({"system": [{"type": "text", "text": "x", "color": "red"}]}, "system.0.color"),
        ({"thinking": {"type": "disabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
    ],
)
def test_refusals_unknown_field_in_the_words_that_agents_know(service: Service, fields: Any, path: str) -> None:
    answer = service.ask(**fields)
    assert answer.refusal() == (400, "unsupported_parameter", "invalid_request_error", path)
    assert answer.words == f"{path}: Extra inputs are not permitted"


def test_refusals_prompt_too_long_in_the_words_that_agents_know(service: Service) -> None:
    assert service.ask("x " * 1_000_123).words == "prompt is too long: 1000123 tokens > 999999 maximum"


@pytest.mark.parametrize(
    "kind", ["web_search_20250305", "bash_20250124", "text_editor_20250728", "computer_20250124", "mcp_toolset"]
)
def test_refusals_server_tool_by_its_name(service: Service, kind: str) -> None:
    answer = service.ask(tools=[TIME, {"type": kind, "name": "x", "max_uses": 8}])
    assert answer.refusal() == (400, "unsupported_parameter", "invalid_request_error", "tools.1.type")
    assert answer.words.startswith(f"{kind} is a tool Anthropic defines or runs; ")


def test_refusals_fault_of_ours_tells_the_request_id_alone(service: Service) -> None:
    answer = service.ask([["no such step", "/etc/passwd"]])
    assert answer.words == f"internal error (request {answer.headers['request-id']})"


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "\u202ea", "x" * 10_000])
def test_refusals_unknown_field_is_told_back_without_harm(service: Service, name: str) -> None:
    answer = service.ask(**{name: 1})
    assert answer.refusal()[1] == "unsupported_parameter"
    assert len(str(answer.refusal()[3])) <= 200
    assert not set(answer.words) & {"\n", "\x1b", "\u202e"}
