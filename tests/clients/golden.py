"""Golden conversations: what is asked, what the scripted engine plays, and the one answer that clients must read.

Decides the conversations and the refusals. Must not know any client: each of them gets plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MODEL = "b3os/scripted"

WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CITY_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
TOOLS: dict[str, Any] = {"tools": [WEATHER]}
THINKING = {"thinking": {"type": "adaptive"}}
JSON_ANSWER: dict[str, Any] = {"output_config": {"format": {"type": "json_schema", "schema": CITY_SCHEMA}}}

Steps = Sequence[Any]
_NOT_COMPARED = ("id", "b3os", "stop_details", "parsed_output")  # ids, timing, and what SDKs add by themselves


@dataclass(frozen=True, slots=True)
class Conversation:
    """One question and its answer.

    Attributes:
        content: the blocks of the answer, in the form that `comparable` gives them.
        streamed_content: the same where a stream shows more than the whole answer.
        is_golden: the stream's bytes are kept in `tests/golden/`.
    """

    name: str
    steps: Steps
    content: Sequence[Mapping[str, Any]]
    output_tokens: int
    stop_reason: str = "end_turn"
    stop_sequence: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    prefill: str | None = None
    streamed_content: Sequence[Mapping[str, Any]] | None = None
    is_golden: bool = False

    def body(self) -> dict[str, Any]:
        """The request's fields, without `stream`."""
        messages = [{"role": "user", "content": self._script()}]
        if self.prefill is not None:
            messages.append({"role": "assistant", "content": self.prefill})
        return {"model": MODEL, "max_tokens": 64, "messages": messages, **self.fields}

    def _script(self) -> str:
        """A prefill counts as an answer that was played, so that its script has an empty one before."""
        if self.prefill is None:
            return script(self.steps)
        return json.dumps({"turns": [[], self.steps]})

    def answer(self, *, is_stream: bool) -> dict[str, Any]:
        """What a client holds at the end, in the form that `comparable` gives it."""
        content = self.streamed_content if is_stream and self.streamed_content is not None else self.content
        words = sum(len(message["content"].split()) for message in self.body()["messages"])
        return {
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": list(content),
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence,
            "usage": {"input_tokens": words, "output_tokens": self.output_tokens},
        }


def script(steps: Steps) -> str:
    """A prompt that the scripted engine answers with these steps."""
    return json.dumps({"scripted": steps})


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def thinking(words: str) -> dict[str, Any]:
    """A block of reasoning, signed."""
    return {"type": "thinking", "thinking": words, "signature": "signed"}


def call(number: int, **arguments: str) -> dict[str, Any]:
    """The call of a tool; the first has number 1."""
    return {"type": "tool_use", "id": f"call {number}", "name": "get_weather", "input": arguments}


def comparable(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without what differs from one answer to the next."""
    ids = [block["id"] for block in message["content"] if "id" in block]
    assert len(set(ids)) == len(ids)
    assert message["id"].startswith("msg_")
    return {name: value for name, value in message.items() if name not in _NOT_COMPARED} | {
        "content": [_comparable_block(block, ids) for block in message["content"]]
    }


def _comparable_block(block: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    kept = {name: value for name, value in block.items() if value is not None}
    if "id" in kept:
        assert kept["id"].startswith("chatcmpl-tool-")
        kept["id"] = f"call {ids.index(kept['id']) + 1}"
    if kept.get("signature"):
        kept["signature"] = "signed"
    return kept


CONVERSATIONS = [
    Conversation("text", [["text", "Hel"], ["text", "lo, wörld\n"]], [text("Hello, wörld\n")], 2, is_golden=True),
    Conversation(
        "thinking and text",
        [["thinking", "Let me "], ["thinking", "see."], ["text", "Yes."]],
        [thinking("Let me see."), text("Yes.")],
        3,
        fields=THINKING,
        is_golden=True,
    ),
    Conversation(
        "one call", [["tool", "get_weather", {"city": "Paris"}]], [call(1, city="Paris")], 1, "tool_use", fields=TOOLS
    ),
    Conversation(
        "two calls after thinking and text",
        [
            ["thinking", "Two cities."],
            ["text", "I'll look."],
            ["tool", "get_weather", {"city": "Paris"}],
            ["tool", "get_weather", {"city": "São Paulo"}],
        ],
        [thinking("Two cities."), text("I'll look."), call(1, city="Paris"), call(2, city="São Paulo")],
        4,
        "tool_use",
        fields=TOOLS | THINKING,
        is_golden=True,
    ),
    Conversation(
        "a call that is forced",
        [["tool", "get_weather", {"city": "Rome"}], ["tool", "get_weather", {"city": "never"}]],
        [call(1, city="Rome")],
        1,
        "tool_use",
        fields=TOOLS | {"tool_choice": {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}},
    ),
    # The SDKs' helpers give a call that was cut an empty input; that it isn't whole is told by `stop_reason` alone.
    # The answer that isn't streamed leaves the call out.
    Conversation(
        "a cut call",
        [["text", "I'll look."], ["cut", "get_weather", '{"city": "Par']],
        [text("I'll look.")],
        2,
        "max_tokens",
        fields=TOOLS,
        streamed_content=[text("I'll look."), call(1)],
        is_golden=True,
    ),
    Conversation(
        "a cut text", [["repeat", 9, ["text", "x "]]], [text("x x ")], 2, "max_tokens", fields={"max_tokens": 2}
    ),
    Conversation(
        "a stop sequence",
        [["text", "one, t"], ["text", "wo, three"], ["text", "four"]],
        [text("one, ")],
        2,
        "stop_sequence",
        "two",
        fields={"stop_sequences": ["two", "four"]},
        is_golden=True,
    ),
    Conversation("nothing", [], [text("")], 0, is_golden=True),
    Conversation("a prefill", [["text", " is Paris."]], [text(" is Paris.")], 1, prefill="The capital of France"),
    Conversation(
        "json",
        [["text", '{"city": "Paris", '], ["text", '"people": 2100000}']],
        [text('{"city": "Paris", "people": 2100000}')],
        2,
        fields=JSON_ANSWER,
    ),
]
SILENCE = Conversation(
    "a silence", [["text", "Hm"], ["pause", 15], ["text", "m."]], [text("Hmm.")], 2, is_golden=True
)
"""Midway between one ping and two, each after ten seconds, whoever stands still for a while."""
FAILURE = Conversation("a failure", [["text", "Hel"], ["fail"]], [], 0, is_golden=True)
GOLDEN = [*(conversation for conversation in CONVERSATIONS if conversation.is_golden), SILENCE, FAILURE]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that gets no answer.

    Attributes:
        text_bytes: the user's text has this many, instead of a script.
        is_final: SDKs must not ask again.
    """

    name: str
    status: int
    kind: str
    code: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    steps: Steps = ()
    text_bytes: int = 0
    is_final: bool = True

    def body(self) -> dict[str, Any]:
        """The request's fields."""
        words = "x" * self.text_bytes or script(self.steps)
        return {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": words}], **self.fields}


REFUSALS = [
    Refusal("a wrong field", 400, "invalid_request_error", "invalid_request", {"max_tokens": 0}),
    Refusal("an unknown field", 400, "invalid_request_error", "unsupported_parameter", {"container": "c"}),
    Refusal(
        "a wrong key", 401, "authentication_error", "unauthorized", headers={"Authorization": "Bearer b3os_sk_none"}
    ),
    Refusal("an unknown model", 404, "not_found_error", "model_not_available", {"model": "claude-opus-5-5"}),
    Refusal("a body too large", 413, "request_too_large", "payload_too_large", text_bytes=11 << 20),
    Refusal(
        "another content type",
        415,
        "invalid_request_error",
        "unsupported_media_type",
        headers={"Content-Type": "text/plain"},
    ),
    Refusal("a fault of ours", 500, "api_error", "internal", steps=[["crash"]], is_final=False),
    Refusal("a dead runtime", 503, "overloaded_error", "infer_backend_unavailable", steps=[["fail"]], is_final=False),
]
