"""The tables "Fields" of docs/wire.md."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.bodies import CITY, TIME, USER, WEATHER, call, image, picture, result
from tests.contract.service import Service


def types(service: Service, script: Any = "Hi", **fields: Any) -> list[str]:
    return [block["type"] for block in service.ask(script, **fields).message["content"]]


def test_fields_model_has_to_be_one_that_is_served(service: Service) -> None:
    assert service.ask(model="b3os/other").refusal() == (404, "model_not_available", "not_found_error", "model")
    for model in ("", "x" * 257, 3):
        service.refused("model", model=model)


def test_fields_messages_are_strings_or_blocks_of_either_side(service: Service) -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    turns = [{"role": role, "content": blocks} for role in ("user", "user", "assistant", "user")]
    assert service.count(messages=turns) == 8
    service.refused("messages", messages=[])
    service.refused("messages.1.role", messages=[USER, {"role": "tool", "content": "x"}])
    service.refused("messages.0.content", messages=[{"role": "user", "content": 3}])


@pytest.mark.parametrize("content", ["", []])
def test_fields_messages_may_be_empty_only_at_the_start_of_the_answer(service: Service, content: Any) -> None:
    empty = {"role": "assistant", "content": content}
    assert service.ask(messages=[USER, empty]).status == 200
    service.refused("messages.1.content", messages=[USER, empty, USER])
    service.refused("messages.0.content", messages=[{"role": "user", "content": content}])


def test_fields_max_tokens_cap_the_answer_and_are_capped_themselves(service: Service) -> None:
    message = service.ask([["repeat", 9, ["text", "a"]]], max_tokens=3).message
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == ("max_tokens", 3)
    assert service.ask(max_tokens=10**9).status == 200
    for wrong in (0, -1, 1.5, "5", True):
        service.refused("max_tokens", max_tokens=wrong)
    body = service.body()
    del body["max_tokens"]
    answer = service.post(body)
    assert (answer.refusal()[3], answer.words) == ("max_tokens", "max_tokens: Field required")


def test_fields_system_is_text_or_text_blocks_joined_by_blank_lines(service: Service) -> None:
    script = ['{"scripted":', '[["text", "from two blocks"]]}']
    blocks = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in script]
    assert service.ask(system=blocks).message["content"][0]["text"] == "from two blocks"
    assert service.ask(system="\n\n".join(script)).message["content"][0]["text"] == "from two blocks"
    service.refused("system.0.type", system=[image()])


def test_fields_text_is_a_block(service: Service) -> None:
    assert service.ask(messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]).status == 200
    service.refused("messages.0.content.0.text", messages=[{"role": "user", "content": [{"type": "text"}]}])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_fields_image_is_one_of_four_kinds_in_a_turn_or_a_result(service: Service, kind: str) -> None:
    block = image(picture(kind), f"image/{kind.lower()}")
    turns = [{"role": "user", "content": [block]}, call(), result(content=[block])]
    assert service.ask(messages=turns, tools=[WEATHER]).status == 200


@pytest.mark.parametrize("turns", [[call()], [USER, call()], [call("a"), call("a"), result("a")]])
def test_fields_tool_use_has_an_id_of_its_own_and_gets_a_result(service: Service, turns: Any) -> None:
    answer = service.ask(messages=turns, tools=[WEATHER])
    assert answer.refusal()[:2] == (400, "invalid_request")


def test_fields_tool_result_answers_an_earlier_call_once(service: Service) -> None:
    assert service.ask(messages=[USER, call(), result()], tools=[WEATHER]).status == 200
    path = "content.0.tool_use_id"
    service.refused(f"messages.1.{path}", messages=[USER, result()])
    service.refused(f"messages.3.{path}", messages=[USER, call(), result(), result()])


def test_fields_tool_result_is_text_or_images_and_an_error_says_so(service: Service) -> None:
    def counted(**fields: Any) -> int:
        return service.count(messages=[USER, call(), result(**fields)])

    plain = counted(content="out of order")
    assert counted(content=[{"type": "text", "text": "out of"}, {"type": "text", "text": "order"}]) == plain
    assert counted(content="out of order", is_error=True) == plain + 1  # `Error:`
    assert counted(content=None) == plain - 3


def test_fields_thinking_block_goes_back_with_any_signature_or_none(service: Service) -> None:
    for signature in ({}, {"signature": ""}, {"signature": "of another server"}, {"signature": None}):
        turn = {"role": "assistant", "content": [{"type": "thinking", "thinking": "", **signature}]}
        assert service.ask(messages=[USER, turn, USER]).status == 200


def test_fields_tools_have_names_of_their_own_and_schemas(service: Service) -> None:
    assert service.ask(tools=[WEATHER | {"type": "custom"}, TIME]).status == 200
    service.refused("tools.1.name", tools=[TIME, TIME])
    service.refused("tools.0.name", tools=[TIME | {"name": "get time"}])
    service.refused("tools.0.input_schema", tools=[{"name": "a"}])
    service.refused("tools.0.input_schema", tools=[TIME | {"input_schema": "x"}])


def test_fields_tools_that_are_strict_or_forced_need_schemas_that_hold(service: Service) -> None:
    loose = {"name": "loose", "input_schema": {"type": "object", "not": {"required": ["a"]}}}
    path, code = "tools.0.input_schema.not", "unsupported_parameter"
    assert service.ask(tools=[loose]).status == 200
    service.refused(path, code, tools=[loose | {"strict": True}])
    service.refused(path, code, tools=[loose], tool_choice={"type": "any"})


def test_fields_tool_choice_auto_may_call_and_needs_no_tools(service: Service) -> None:
    script = [["text", "Let me see."], ["tool", "get_weather", {"city": "Paris"}]]
    message = service.ask(script, tools=[WEATHER], tool_choice={"type": "auto"}).message
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]
    assert message["content"][1]["input"] == {"city": "Paris"}
    assert message["stop_reason"] == "tool_use"
    assert service.ask(tool_choice={"type": "auto"}).status == 200


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_fields_tool_choice_any_and_tool_force_a_call_that_matches(service: Service, choice: Any) -> None:
    message = service.ask(tools=[WEATHER], tool_choice=choice).message
    (block,) = message["content"]
    assert (block["type"], block["name"], list(block["input"])) == ("tool_use", "get_weather", ["city"])
    assert message["stop_reason"] == "tool_use"
    assert service.ask([["text", "No."]], tools=[WEATHER], tool_choice=choice).refusal()[:2] == (500, "internal")


def test_fields_tool_choice_any_needs_tools_and_tool_one_of_them(service: Service) -> None:
    service.refused("tool_choice", tool_choice={"type": "any"})
    service.refused("tool_choice.name", tools=[TIME], tool_choice={"type": "tool", "name": "get_weather"})
    service.refused("tool_choice.type", "unsupported_parameter", tool_choice={"type": "required"})


def test_fields_tool_choice_none_keeps_the_tools_and_calls_none(service: Service) -> None:
    assert types(service, tools=[WEATHER], tool_choice={"type": "none"}) == ["text"]


@pytest.mark.parametrize("choice", ["auto", "any"])
def test_fields_tool_choice_disable_parallel_tool_use_ends_with_the_first_call(service: Service, choice: str) -> None:
    script = [["tool", "get_time", {}], ["tool", "get_time", {}]]
    both: dict[str, Any] = {"tools": [TIME], "tool_choice": {"type": choice}}
    one = {"tools": [TIME], "tool_choice": {"type": choice, "disable_parallel_tool_use": True}}
    assert types(service, script, **both) == ["tool_use", "tool_use"]
    assert types(service, script, **one) == ["tool_use"]


def test_fields_thinking_has_a_budget_within_max_tokens(service: Service) -> None:
    enabled = {"type": "enabled", "budget_tokens": 1024}
    assert service.ask(thinking=enabled, max_tokens=1025).status == 200
    service.refused("thinking.budget_tokens", thinking=enabled, max_tokens=1024)
    service.refused("thinking.budget_tokens", thinking=enabled | {"budget_tokens": 1023}, max_tokens=5000)
    service.refused("thinking.budget_tokens", thinking={"type": "enabled"}, max_tokens=5000)


@pytest.mark.parametrize("kind", ["adaptive", "disabled", None])
def test_fields_thinking_adaptive_disabled_and_absent_need_no_budget(service: Service, kind: str | None) -> None:
    thinking = {} if kind is None else {"thinking": {"type": kind}}
    assert service.ask(**thinking).status == 200


def test_fields_thinking_comes_first_and_signed(service: Service) -> None:
    script = [["thinking", "Hm, "], ["thinking", "yes."], ["text", "Yes."]]
    thinking, text = service.ask(script, thinking={"type": "adaptive"}).message["content"]
    assert (thinking["thinking"], text["text"]) == ("Hm, yes.", "Yes.")
    assert thinking["signature"]


def test_fields_output_config_format_is_json_that_matches(service: Service) -> None:
    config = {"format": {"type": "json_schema", "schema": CITY}}
    assert service.ask(output_config=config).message["content"][0]["text"] == '{"city": "scripted"}'
    assert service.ask([["text", "{}"]], output_config=config).refusal()[:2] == (500, "internal")
    thought = service.ask([["thinking", "{"], ["text", '{"city": "a"}']], output_config=config).message
    assert thought["content"][1]["text"] == '{"city": "a"}'


def test_fields_output_config_format_must_be_enforceable_and_at_the_start(service: Service) -> None:
    path = "output_config.format"
    config = {"format": {"type": "json_schema", "schema": {"type": "object", "not": {"required": ["a"]}}}}
    service.refused(f"{path}.schema.not", "unsupported_parameter", output_config=config)
    config["format"]["schema"] = CITY
    service.refused(path, output_config=config, messages=[USER, {"role": "assistant", "content": "{"}])
    service.refused(f"{path}.type", "unsupported_parameter", output_config={"format": {"type": "text"}})


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"format": {}}, "format"),
        ({"type": "object", "maximum": 6, "$ref": "#"}, "$ref"),
        ({"type": "object", "properties": []}, "properties"),
        ({"type": "object", "anyOf": []}, "anyOf"),
    ],
)
def test_fields_output_config_format_that_is_no_schema_is_refused(
    service: Service, schema: Any, keyword: str
) -> None:
    config = {"format": {"type": "json_schema", "schema": schema}}
    service.refused(f"output_config.format.schema.{keyword}", output_config=config)


def test_fields_stop_sequences_are_looked_for_in_the_text_alone(service: Service) -> None:
    script = [["thinking", "STOP"], ["text", "one ST"], ["text", "OP two"]]
    message = service.ask(script, stop_sequences=["END", "STOP"]).message
    assert [block.get("text") for block in message["content"]] == [None, "one "]
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "STOP")
    service.refused("stop_sequences.1", stop_sequences=["a", ""])


def test_fields_stream_makes_events_of_the_answer(service: Service) -> None:
    assert service.ask(stream=True).events
    assert not service.ask(stream=False).is_stream
    service.refused("stream", stream="true")


@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_fields_temperature_is_from_0_to_1(service: Service, name: str) -> None:
    for value in (0, 0.5, 1, 1.0):
        assert service.ask(**{name: value}).status == 200
    for wrong in (-0.1, 1.1, "1", True):
        service.refused(name, **{name: wrong})


def test_fields_top_p_may_be_0(service: Service) -> None:
    assert service.ask(top_p=0, temperature=0, top_k=1).status == 200


def test_fields_top_k_is_from_1_to_a_million(service: Service) -> None:
    assert service.ask(top_k=1_000_000).status == 200
    for value in (0, 1_000_001, 1.5):
        service.refused("top_k", top_k=value)


def test_fields_trailing_assistant_turn_is_continued(service: Service) -> None:
    turns = [{"role": "user", "content": '{"turns": [[], [["text", " world"]]]}'}]
    message = service.ask(messages=[*turns, {"role": "assistant", "content": "Hello"}]).message
    assert [block["text"] for block in message["content"]] == [" world"]


def test_fields_null_is_no_value_anywhere(service: Service) -> None:
    block = {"type": "text", "text": "Hi", "cache_control": None, "citations": None, "unknown": None}
    nulls = dict.fromkeys(
        ("system", "tools", "tool_choice", "thinking", "output_config", "stop_sequences", "stream", "temperature")
    )
    more = dict.fromkeys(("top_p", "top_k", "metadata", "service_tier", "thread", "safeguards", "unknown"))
    answer = service.ask(messages=[{"role": "user", "content": [block], "x": None}], **nulls, **more)
    assert answer.status == 200
    assert "x-b3os-ignored" not in answer.headers
    service.refused("max_tokens", max_tokens=None)


def test_fields_accepted_and_ignored_are_listed(service: Service) -> None:
    block = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}, "citations": []}
    thought = {"type": "thinking", "thinking": "a", "signature": "x"}
    answer = service.ask(
        messages=[
            {"role": "user", "content": [block]},
            {"role": "assistant", "content": [thought, {"type": "redacted_thinking", "data": "secret words"}]},
            USER,
        ],
        metadata={"user_id": "u"},
        service_tier="auto",
        output_config={"effort": "high"},
        thinking={"type": "adaptive", "display": "omitted"},
    )
    names = ("cache_control", "citations", "redacted_thinking", "signature")
    expected = [*(f"messages.content.{name}" for name in names)]
    expected += ["metadata", "output_config.effort", "service_tier", "thinking.display"]
    assert answer.message["usage"]["input_tokens"] == 2
    assert answer.headers["x-b3os-ignored"].split(", ") == expected


def test_fields_content_has_a_block_even_if_nothing_was_said(service: Service) -> None:
    assert service.ask([]).message["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "stop_sequence", "tool_use"])
def test_fields_stop_reason_is_one_of_four(service: Service, reason: str) -> None:
    script = [["text", "a b"], ["tool", "get_time", {}] if reason == "tool_use" else ["text", "c"]]
    stops = ["b"] if reason == "stop_sequence" else None
    limit = 1 if reason == "max_tokens" else 100
    message = service.ask(script, tools=[TIME], stop_sequences=stops, max_tokens=limit).message
    assert message["stop_reason"] == reason
    assert message["stop_sequence"] == ("b" if stops else None)


def test_fields_content_has_no_call_that_was_cut(service: Service) -> None:
    message = service.ask([["text", "a"], ["cut", "get_time", '{"ci']], tools=[TIME]).message
    assert [block["type"] for block in message["content"]] == ["text"]
    assert message["stop_reason"] == "max_tokens"


def test_fields_usage_is_real_and_has_no_cache_fields(service: Service) -> None:
    message = service.ask([["repeat", 7, ["text", "a "]]], system="one two").message
    assert message["usage"] == {"input_tokens": 8, "output_tokens": 7}


@pytest.mark.parametrize("stream", [False, True])
def test_fields_b3os_tells_who_answered_and_how_long_it_took(service: Service, stream: bool) -> None:
    answer = service.ask(stream=stream)
    told = answer.events[-2]["b3os"] if stream else answer.message["b3os"]
    assert set(told) == {"route", "node", "timing", "cached_tokens"}
    assert (told["route"], told["node"]) == ("local", "n1")
    assert set(told["timing"]) == {"ttft_ms" if stream else "model_ms", "total_ms"}
