"""Requests and their first fault: status, code, path and words."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node.wire.ignored import list_ignored
from node.wire.parse import count_values, parse_count, parse_request
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
        ({"stop_sequences": ["a" * 16_385]}, "stop_sequences"),
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
        ({"tools": [{"name": "f", "input_schema": {}, "input_examples": []}]}, "tools.0.input_examples"),
        (
            {"tool_choice": {"type": "none", "disable_parallel_tool_use": True}},
            "tool_choice.disable_parallel_tool_use",
        ),
        ({"safeguards": [{"type": "dangerous_tool_use"}]}, "safeguards"),
        ({"mcp_servers": [{"url": "https://x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"messages": [{"role": "user", "content": "Hi", "extra": 1}]}, "messages.0.extra"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "source": {}}]}]},
            "messages.0.content.0.source",
        ),
    ],
)
def test_a_field_that_is_not_taken_is_refused_in_the_words_that_agents_know(
    changes: dict[str, Any], param: str
) -> None:
    assert refusal(**changes) == ("unsupported_parameter", param, f"{param}: Extra inputs are not permitted")


def block(fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [fields]}]}


def image(source: Any) -> dict[str, Any]:
    return block({"type": "image", "source": source})


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "a document": (block({"type": "document", "source": {}}), "messages.0.content.0.type"),
    "a document in a result": (
        block({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "document"}]}),
        "messages.0.content.0.content.0.type",
    ),
    "a file source": (image({"type": "file", "file_id": "f"}), "messages.0.content.0.source.type"),
    "thinking between tools": ({"thinking": {"type": "between_tools"}}, "thinking.type"),
    "an unknown choice": ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
    "another output format": (
        {"output_config": {"format": {"type": "xml", "schema": {}}}},
        "output_config.format.type",
    ),
    "an edit that clears": (
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        "context_management.edits.0.type",
    ),
    "an edit that keeps less": (
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "none"}]}},
        "context_management.edits.0.keep",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_type_that_this_node_does_not_take_is_unsupported(name: str) -> None:
    changes, param = UNSUPPORTED[name]
    assert refusal(**changes)[:2] == ("unsupported_parameter", param)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a block without a type": (block({"text": "a"}), "messages.0.content.0.type"),
    "a type that is no string": (block({"type": {"a": []}}), "messages.0.content.0.type"),
    "a call in a user turn": (
        block({"type": "tool_use", "id": "a", "name": "f", "input": {}}),
        "messages.0.content.0.type",
    ),
    "an image in an answer": (
        {"messages": [{"role": "assistant", "content": [{"type": "image", "source": {}}]}]},
        "messages.0.content.0.type",
    ),
    "an image in the system prompt": ({"system": [{"type": "image"}]}, "system.0.type"),
    "an image without a source": (block({"type": "image"}), "messages.0.content.0.source"),
    "a source that is no object": (image("x"), "messages.0.content.0.source"),
    "a url that is no string": (image({"type": "url", "url": 1}), "messages.0.content.0.source.url"),
    "a budget below 1024": ({"thinking": {"type": "enabled", "budget_tokens": 1023}}, "thinking.budget_tokens"),
    "a tool name with a blank": ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.name"),
    "a tool name that is too long": ({"tools": [{"name": "a" * 129, "input_schema": {}}]}, "tools.0.name"),
    "a tool name with a line end": ({"tools": [{"name": "a\n", "input_schema": {}}]}, "tools.0.name"),
    "a schema that is no object": ({"tools": [{"name": "a", "input_schema": []}]}, "tools.0.input_schema"),
    "an answer's schema that is no object": (
        {"output_config": {"format": {"type": "json_schema", "schema": 1}}},
        "output_config.format.schema",
    ),
    "an input that is no object": (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": []}]}]},
        "messages.0.content.0.input",
    ),
    "an unknown effort": ({"output_config": {"effort": "some"}}, "output_config.effort"),
    "too many tools": ({"tools": [{"name": "a", "input_schema": {}}] * 1001}, "tools"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_invalid_and_named_by_its_path(name: str) -> None:
    changes, param = WRONG[name]
    code, path, message = refusal(**changes)
    assert (code, path) == ("invalid_request", param)
    assert message.startswith(f"{param}: ")
    assert "#" not in message


def test_an_image_of_another_kind_is_an_unsupported_media_type() -> None:
    source = {"type": "base64", "media_type": "image/bmp", "data": ""}
    assert refusal(**image(source))[:2] == ("unsupported_media_type", "messages.0.content.0.source.media_type")


def test_a_tool_of_anthropic_s_is_refused_by_its_name() -> None:
    code, param, message = refusal(tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}])
    assert (code, param) == ("unsupported_parameter", "tools.0.type")
    assert message.startswith("web_search_20250305 is a tool Anthropic defines or runs; ")


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
    ["model", "messages", "max_tokens", "system", "tools", "tool_choice", "thinking", "output_config", "stream"]
)


@given(st.dictionaries(names | st.text(max_size=5), json_values, max_size=6))
def test_any_body_is_a_request_or_a_refusal_of_ours(changes: dict[str, Any]) -> None:
    with contextlib.suppress(ApiError):
        parse_request(orjson.dumps(VALID | changes))


HOSTILE: dict[str, dict[str, Any]] = {
    "faults": {"messages": [1] * 400_000},
    "empty stops": {"stop_sequences": [""] * 400_000},
    "unknown fields": {f"k{number}": 1 for number in range(100_000)},
    "unknown fields of a block": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"} | {f"k{n}": 1 for n in range(10_000)}]}
        ]
    },
    "blocks without text": {"messages": [{"role": "user", "content": [{"type": "text"}] * 15_000}]},
    "too many blocks": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 20_001}]},
    "too many messages": {"messages": [{"role": "user", "content": "a"}] * 10_001},
    "brackets": {"metadata": [[]] * 500_001},
    "too many stops": {"stop_sequences": ["a"] * 257},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_makes_one_fault_and_not_one_for_each_item(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def counting(error: ValidationError) -> Any:
        counted.append(error.error_count())
        return error.errors()

    monkeypatch.setattr("node.wire.parse.list_faults", counting)
    with pytest.raises(ApiError) as caught:
        parse_request(orjson.dumps(VALID | HOSTILE[name]))
    assert caught.value.condition.status == 400
    assert sum(counted) <= 2


def test_names_that_a_caller_made_up_are_told_back_short_and_harmless() -> None:
    code, _, message = refusal(**{"x" * 100_000: 1})
    assert code == "unsupported_parameter"
    assert len(message) < 300
    assert message.endswith(": Extra inputs are not permitted")
    assert refusal(**{"a\u202eb\x1b[2J\u061c": 1})[1] == "a\ufffdb\ufffd[2J\ufffd"


@pytest.mark.parametrize("name", ["#x", "#string", "#"])
def test_a_field_that_looks_like_a_branch_of_ours_is_named_all_the_same(name: str) -> None:
    assert refusal(**{name: 1})[1] == name


def test_no_message_speaks_of_python() -> None:
    wrong: list[list[Any]] = [[1], [{"role": "user", "content": [1]}], []]
    for messages in wrong:
        message = refusal(messages=messages)[2].lower()
        assert not [word for word in ("instance", "dictionary", "validation", "textblock") if word in message]


def edits(edit: dict[str, Any]) -> dict[str, Any]:
    return {"context_management": {"edits": [edit]}}


CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
CACHED = {"cache_control": {"type": "ephemeral"}}
IGNORED: dict[str, dict[str, Any]] = {
    "thinking.display": {"thinking": {"type": "adaptive", "display": "omitted"}},
    "tools.eager_input_streaming": {"tools": [{"name": "f", "input_schema": {}, "eager_input_streaming": True}]},
    "tools.cache_control": {"tools": [{"name": "f", "input_schema": {}, **CACHED}]},
    "messages.content.signature": {
        "messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "a", "signature": ""}]}]
    },
    "messages.content.redacted_thinking": {
        "messages": [
            *VALID["messages"],
            {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
        ]
    },
    "messages.content.cache_control": {
        "messages": [CALL, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", **CACHED}]}]
    },
    "messages.content.content.cache_control": {
        "messages": [
            CALL,
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": [{"type": "text", "text": "b", **CACHED}],
                    }
                ],
            },
        ]
    },
    "metadata": {"metadata": {"user_id": "u"}},
    "service_tier": {"service_tier": "auto"},
    "cache_control": {"cache_control": {"type": "ephemeral"}},
    "context_management": edits({"type": "clear_thinking_20251015", "keep": "all"}),
    "output_config.effort": {"output_config": {"effort": "high"}},
    "system.cache_control": {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
    "messages.output_config.effort": {
        "messages": [{"role": "system", "content": "a", "output_config": {"effort": "low"}}]
    },
    "messages.content.citations": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "citations": []}]}]
    },
}


@pytest.mark.parametrize("name", IGNORED)
def test_what_is_accepted_and_ignored_is_listed_by_name(name: str) -> None:
    assert list_ignored(parse_request(orjson.dumps(VALID | IGNORED[name]))) == [name]


@pytest.mark.parametrize("name", ["container", "inference_geo", "speed", "diagnostics", "thread", "mcp_servers"])
def test_null_is_no_value_of_a_field_that_only_sdks_know(name: str) -> None:
    assert parse_request(orjson.dumps(VALID | {name: None})).max_tokens == 5
    with pytest.raises(ApiError):
        parse_request(orjson.dumps(VALID | {name: {"a": 1}}))


@pytest.mark.parametrize("name", ["tools", "mcp_servers"])
def test_an_empty_list_asks_for_nothing(name: str) -> None:
    assert parse_request(orjson.dumps(VALID | {name: []})) == parse_request(orjson.dumps(VALID))


def test_null_in_a_nested_field_is_unset_too() -> None:
    assert parse_request(orjson.dumps(VALID | {"output_config": {"format": None, "effort": None}})).max_tokens == 5


def test_nothing_is_listed_for_a_plain_request() -> None:
    assert list_ignored(parse_request(orjson.dumps(VALID | {"thinking": {"type": "disabled"}}))) == []


def test_thread_is_refused_with_the_details_on_which_tool_runners_send_everything_again() -> None:
    with pytest.raises(ApiError) as caught:
        parse_request(orjson.dumps(VALID | {"thread": {"type": "create"}}))
    assert caught.value.details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert (caught.value.condition.code, caught.value.param) == ("unsupported_parameter", "thread")


def test_counting_needs_no_max_tokens() -> None:
    fields = {key: value for key, value in VALID.items() if key != "max_tokens"}
    assert parse_count(orjson.dumps(fields)).messages[0].content == "Hi"


def marks_of(value: Any) -> int:
    """Values inside a value; what is empty counts one."""
    if not isinstance(value, dict | list):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return max(1, len(inner)) + sum(map(marks_of, inner))


@pytest.mark.parametrize("slice_bytes", [1, 2, 3, 7, 64, 65_536])
def test_values_are_counted_and_what_stands_in_strings_is_none(
    slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.wire.parse._SLICE_BYTES", slice_bytes)
    strings = ["", '"', "\\", '\\"', "\\\\", ',"[{', "a\\\\\\", '\\",', "é\n,", '"' * 5 + "," + "\\" * 5]
    value = {text: [text, {"a": strings, "[": []}, {}, 1, None, [[text]]] for text in strings}
    assert count_values(orjson.dumps(value)) == marks_of(value)
    assert count_values(orjson.dumps(value, option=orjson.OPT_INDENT_2)) == marks_of(value)


@pytest.mark.parametrize("value", [1, "x", [1], {"b": 1}])
def test_a_body_of_many_values_is_refused(value: Any) -> None:
    with pytest.raises(ApiError, match="more than 150000 JSON values"):
        parse_request(orjson.dumps(VALID | {"x": [value] * 150_000}))


def test_any_text_is_no_more_than_one_value() -> None:
    text = '",[{' * 150_001
    message = parse_request(orjson.dumps(VALID | {"messages": [{"role": "user", "content": text}]})).messages[0]
    assert message.content == text
