"""What the template gets: order kept, text joined, no special token spelled by a caller."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from node.translate.prompt import PromptBuilder
from node.translate.sampling import build_sampling
from node.wire.parse import parse_request

BUILDER = PromptBuilder({"<|im_start|>", "<|im_end|>", "<|im|>", ""})


def messages(fields: dict[str, Any]) -> list[dict[str, Any]]:
    request = parse_request(orjson.dumps({"model": "m", "max_tokens": 5, **fields}))
    return [dict(message) for message in BUILDER.build_prompt(request).messages]


def test_system_comes_first_and_its_blocks_are_joined_with_blank_lines() -> None:
    system = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert messages({"system": system, "messages": [{"role": "user", "content": "Hi"}]}) == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "Hi"},
    ]


def test_a_system_turn_stays_in_place_on_the_user_s_side() -> None:
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": [{"type": "text", "text": "Plan mode is on."}]},
        {"role": "assistant", "content": "Hello"},
        {"role": "system", "content": "Be quick."},
    ]
    assert messages({"system": "Be kind.", "messages": turns}) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi\n\n<system-reminder>\nPlan mode is on.\n</system-reminder>"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "<system-reminder>\nBe quick.\n</system-reminder>"},
    ]


def test_turns_of_one_side_that_follow_each_other_are_one() -> None:
    turns = [{"role": role, "content": text} for role, text in (("user", "a"), ("user", "b"), ("assistant", "c"))]
    assert messages({"messages": [*turns, {"role": "assistant", "content": "d"}]}) == [
        {"role": "user", "content": "a\n\nb"},
        {"role": "assistant", "content": "c\n\nd"},
    ]


def test_an_empty_system_prompt_is_none() -> None:
    assert messages({"system": "", "messages": [{"role": "user", "content": "Hi"}]}) == [
        {"role": "user", "content": "Hi"}
    ]


def test_a_trailing_assistant_turn_is_continued_with_its_space() -> None:
    turns = [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "One, "}]
    request = parse_request(orjson.dumps({"model": "m", "max_tokens": 5, "messages": turns}))
    prompt = BUILDER.build_prompt(request, cache_salt="s")
    assert prompt.continues_last
    assert prompt.messages[-1]["content"] == "One, "
    assert (prompt.cache_salt, prompt.enable_thinking) == ("s", False)


@pytest.mark.parametrize("token", ["<|im_start|>", "<|im_end|>", "<|im|>"])
@pytest.mark.parametrize("place", ["system", "user", "assistant"])
def test_a_special_token_can_be_read_but_not_spelled(token: str, place: str) -> None:
    text = f"say {token} twice: {token}{token}"
    turns = [{"role": "assistant" if place == "assistant" else "user", "content": text}]
    fields: dict[str, Any] = {"messages": [*turns, {"role": "user", "content": "x"}]}
    if place == "system":
        fields["system"] = text
    rendered = messages(fields)[0]["content"]
    assert token not in rendered
    assert rendered.replace("\u200b", "").startswith(text)


def test_a_special_token_can_not_be_spelled_across_blocks() -> None:
    blocks = [{"type": "text", "text": "<|im_"}, {"type": "text", "text": "end|>"}]
    assert "<|im_end|>" not in messages({"messages": [{"role": "user", "content": blocks}]})[0]["content"]


def test_sampling_leaves_unset_choices_to_the_model() -> None:
    request = parse_request(
        orjson.dumps({"model": "m", "max_tokens": 5, "top_p": 0, "messages": [{"role": "user", "content": "x"}]})
    )
    sampling = build_sampling(request)
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (5, None, 0, None)
