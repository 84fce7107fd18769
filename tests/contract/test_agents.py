"""The table "Agents" of docs/wire.md: what they send beyond Anthropic's documented fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.bodies import TIME, USER, WEATHER, call, result
from tests.contract.service import MESSAGES, Service

UNSUPPORTED = "unsupported_parameter"
DEFERRED = WEATHER | {"defer_loading": True}
PLAY = '{{"scripted": [["text", "{}"]]}}'


def ignored(service: Service, **fields: Any) -> str:
    answer = service.ask(**fields)
    assert answer.status == 200, answer.raw
    return answer.headers["x-b3os-ignored"]


def reminder(text: str = "Be brief.") -> dict[str, Any]:
    return {"role": "system", "content": text}


def test_agents_role_system_in_messages_is_taken_as_string_or_blocks(service: Service) -> None:
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    plain = service.count(messages=[USER])
    for content in ("Be brief.", blocks):
        wrapped = service.count(messages=[USER, {"role": "system", "content": content}])
        assert wrapped == plain + 4  # the wrapper has two words
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    answer = service.ask(messages=[USER, {"role": "system", "content": [image]}])
    assert answer.refusal()[3] == "messages.1.content.0.type"


def test_agents_role_system_in_messages_stays_in_its_place_on_the_user_s_side(service: Service) -> None:
    """The first script of the last turn of the user's side is played."""
    say = {"role": "user", "content": PLAY.format("of the user")}
    remind = reminder(PLAY.format("of the reminder"))
    for turns, text in (([say, remind], "of the user"), ([remind, say], "of the reminder")):
        assert service.ask(messages=turns).message["content"][0]["text"] == text
    last = [say, {"role": "assistant", "content": "ok"}, USER, remind]
    assert service.ask(messages=last).message["content"][0]["text"] == "of the reminder"


def test_agents_role_system_in_messages_may_stand_between_a_call_and_its_result(service: Service) -> None:
    assert service.ask(messages=[USER, call(), reminder(), result(), reminder()], tools=[WEATHER]).status == 200


KEEP = {"type": "clear_thinking_20251015", "keep": "all"}


@pytest.mark.parametrize("edits", [[KEEP], [KEEP, KEEP], []])
def test_agents_context_management_that_clears_nothing_is_ignored(service: Service, edits: Any) -> None:
    assert ignored(service, context_management={"edits": edits}) == "context_management"


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ({"type": "clear_tool_uses_20250919"}, "type"),
        (KEEP | {"keep": "some"}, "keep"),
        (KEEP | {"trigger": {"type": "input_tokens", "value": 1}}, "trigger"),
    ],
)
def test_agents_context_management_that_clears_something_is_refused(service: Service, edit: Any, field: str) -> None:
    service.refused(f"context_management.edits.1.{field}", UNSUPPORTED, context_management={"edits": [KEEP, edit]})


def test_agents_defer_loading_hides_a_tool_until_it_is_named(service: Service) -> None:
    forced = {"tools": [DEFERRED, TIME], "tool_choice": {"type": "any"}}
    assert service.ask(**forced).message["content"][0]["name"] == "get_time"
    loaded = result(content=[{"type": "tool_reference", "tool_name": "get_weather"}])
    after = service.ask(messages=[USER, call(tool="search"), loaded], **forced)
    assert after.message["content"][0]["name"] == "get_weather"
    alone = service.ask(tools=[DEFERRED], tool_choice={"type": "any"})
    assert alone.refusal()[3] == "tool_choice"


def test_agents_tool_reference_names_one_of_the_tools(service: Service) -> None:
    loaded = result(content=[{"type": "tool_reference", "tool_name": "get_weather"}])
    turns = [USER, call(tool="search"), loaded]
    assert service.ask(messages=turns, tools=[DEFERRED]).status == 200
    answer = service.ask(messages=turns, tools=[TIME])
    assert answer.refusal()[3] == "messages.2.content.0.content.0.tool_name"


def test_agents_eager_input_streaming_is_ignored(service: Service) -> None:
    assert ignored(service, tools=[TIME | {"eager_input_streaming": True}]) == "tools.eager_input_streaming"


def test_agents_cache_control_of_the_request_is_ignored(service: Service) -> None:
    assert ignored(service, cache_control={"type": "ephemeral"}) == "cache_control"


def test_agents_output_config_of_a_message_is_ignored(service: Service) -> None:
    turns = [USER | {"output_config": {"effort": "low"}}, reminder() | {"output_config": {"effort": "medium"}}]
    assert ignored(service, messages=turns) == "messages.output_config.effort"


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}, 3])
def test_agents_thread_is_refused_with_the_details_that_tool_runners_know(service: Service, thread: Any) -> None:
    answer = service.ask(thread=thread)
    assert answer.refusal() == (400, UNSUPPORTED, "invalid_request_error", "thread")
    details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert answer.body["error"]["details"] == details


def test_agents_safeguards_are_refused_in_words_that_agents_know(service: Service) -> None:
    words = service.refused("safeguards", UNSUPPORTED, safeguards=[{"type": "dangerous_tool_use"}])
    assert words == "safeguards: Extra inputs are not permitted"


@pytest.mark.parametrize("value", ["container_1", {"skills": []}])
def test_agents_container_is_refused(service: Service, value: Any) -> None:
    service.refused("container", UNSUPPORTED, container=value)


def test_agents_mcp_servers_are_refused_unless_there_are_none(service: Service) -> None:
    service.refused(
        "mcp_servers", UNSUPPORTED, mcp_servers=[{"type": "url", "url": "https://example.com", "name": "x"}]
    )
    assert service.ask(mcp_servers=[]).status == 200


def test_agents_tools_of_anthropic_are_refused_by_name(service: Service) -> None:
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    words = service.refused("tools.0.type", UNSUPPORTED, tools=[tool], tool_choice={"type": "auto"})
    assert words.startswith("web_search_20250305 is a tool Anthropic defines or runs; ")


DOCUMENT = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}


def test_agents_document_is_refused_in_a_turn_and_in_a_result(service: Service) -> None:
    service.refused("messages.0.content.0.type", UNSUPPORTED, messages=[{"role": "user", "content": [DOCUMENT]}])
    turns = [USER, call(), result(content=[DOCUMENT])]
    service.refused("messages.2.content.0.content.0.type", UNSUPPORTED, messages=turns, tools=[WEATHER])


def test_agents_file_sources_are_refused(service: Service) -> None:
    block = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    service.refused("messages.0.content.0.source.type", UNSUPPORTED, messages=[{"role": "user", "content": [block]}])


@pytest.mark.parametrize("query", ["", "?beta=true", "?anything=1"])
@pytest.mark.parametrize("version", ["", "2023-06-01", "2026-10-21", "tomorrow"])
@pytest.mark.parametrize("beta", ["", "made-up-2030-01-01,other", "…"])
def test_agents_any_version_beta_and_query_passes(service: Service, query: str, version: str, beta: str) -> None:
    answer = service.post(service.body(), MESSAGES + query, anthropic_version=version, anthropic_beta=beta)
    assert answer.status == 200
