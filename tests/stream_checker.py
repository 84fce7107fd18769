"""The grammar of a stream, written down a second time: whatever reads one in a test asks this.

Decides what a legal stream is, from the contract and from what SDKs need. Shares no code with what makes streams.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]

_EMPTY = {  # how each kind of block begins: SDKs append to these
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
_DELTAS = {  # the deltas that each kind of block may have, and the field of each
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
}
_REASONS = {"end_turn", "max_tokens", "stop_sequence", "tool_use"}


def read_frames(raw: bytes) -> list[Event]:
    """Every frame, checked to the byte: `event`, `data`, an empty line, LF."""
    assert raw.endswith(b"\n\n")
    assert b"\r" not in raw
    events: list[Event] = []
    for frame in raw[:-2].split(b"\n\n"):
        head, data = frame.split(b"\n")
        assert data.startswith(b"data: ")
        event = json.loads(data[6:])
        assert head == b"event: " + event["type"].encode()
        events.append(event)
    return events


def check_stream(events: Iterable[Event], *, may_fail: bool = False) -> None:
    """Raise `AssertionError` at the first event that may not come, or if the end is missing.

    Args:
        may_fail: the stream may end with an `error` event.
    """
    checker = _Checker()
    for event in events:
        checker.see(event)
    assert checker.has_ended, "the stream has no end"
    assert may_fail or not checker.has_failed, "the stream failed"


class _Checker:
    """What was seen of one stream."""

    def __init__(self) -> None:
        self.has_ended = self.has_failed = False
        self._message: Event | None = None
        self._blocks: list[Event] = []
        self._parts: list[str] = []  # of the open block, or of the last one
        self._is_open = self._is_signed = False
        self._cut: list[int] = []  # calls whose input isn't whole
        self._end: Event | None = None

    def see(self, event: Event) -> None:
        assert not self.has_ended, f"{event['type']} after the end"
        handler = getattr(self, f"_see_{event['type']}", None)
        assert handler is not None, f"{event['type']} is no event of Anthropic's"
        assert self._message is not None or event["type"] == "message_start", f"{event['type']} before the start"
        assert self._end is None or event["type"] in ("message_stop", "error"), f"{event['type']} after message_delta"
        handler(event)

    def _see_ping(self, event: Event) -> None:
        assert event == {"type": "ping"}

    def _see_message_start(self, event: Event) -> None:
        assert self._message is None, "a second message_start"
        assert set(event) == {"type", "message"}
        self._message = event["message"]
        assert set(self._message) == {
            *("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage")
        }
        constant = {name: self._message[name] for name in ("type", "role", "content", "stop_reason", "stop_sequence")}
        assert constant == {
            "type": "message",
            "role": "assistant",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        assert self._message["id"].startswith("msg_")
        _check_usage(self._message["usage"])

    def _see_content_block_start(self, event: Event) -> None:
        assert not self._is_open, "a block begins within another"
        assert set(event) == {"type", "index", "content_block"}
        assert event["index"] == len(self._blocks), "indexes count up from 0"
        assert not self._cut, "a block after a call that was cut"
        block = event["content_block"]
        rest = {name: value for name, value in block.items() if name not in ("type", "id", "name")}
        assert rest == _EMPTY[block["type"]]
        assert {"id", "name"} & set(block) == ({"id", "name"} if block["type"] == "tool_use" else set())
        ids = [other["id"] for other in self._blocks if "id" in other]
        assert "id" not in block or (block["id"] and block["id"] not in ids), "ids of calls are unique"
        self._blocks.append(block)
        self._parts, self._is_open, self._is_signed = [], True, False

    def _see_content_block_delta(self, event: Event) -> None:
        assert set(event) == {"type", "index", "delta"}
        delta = event["delta"]
        kind = self._open_block(event)["type"]
        assert delta["type"] in _DELTAS[kind], f"{delta['type']} in a block of {kind}"
        field = _DELTAS[kind][delta["type"]]
        assert set(delta) == {"type", field}
        assert isinstance(delta[field], str)
        assert not self._is_signed, "the signature is the last delta"
        if delta["type"] == "signature_delta":
            assert delta["signature"], "some clients drop thinking without a signature"
            self._is_signed = True
        else:
            self._parts.append(delta[field])

    def _see_content_block_stop(self, event: Event) -> None:
        assert set(event) == {"type", "index"}
        block = self._open_block(event)
        if block["type"] == "tool_use" and not _is_object("".join(self._parts)):
            self._cut.append(event["index"])
        assert block["type"] != "thinking" or self._is_signed, "thinking is signed"
        self._is_open = False

    def _open_block(self, event: Event) -> Event:
        assert self._is_open, f"{event['type']} without a block"
        assert event["index"] == len(self._blocks) - 1, "blocks interleave"
        return self._blocks[-1]

    def _see_message_delta(self, event: Event) -> None:
        assert not self._is_open, "the message ends within a block"
        assert self._blocks, "SDKs read content[0]"
        assert set(event) == {"type", "delta", "usage", "b3os"}
        assert set(event["delta"]) == {"stop_reason", "stop_sequence"}
        assert self._message is not None
        _check_usage(event["usage"])
        assert event["usage"]["input_tokens"] == self._message["usage"]["input_tokens"]
        self._check_reason(event["delta"]["stop_reason"], event["delta"]["stop_sequence"])
        self._end = event

    def _check_reason(self, reason: str, stop: str | None) -> None:
        """The reason must follow from the blocks, since agents decide by either."""
        called = any(block["type"] == "tool_use" for block in self._blocks)
        assert reason in _REASONS
        assert (stop is None) == (reason != "stop_sequence")
        assert stop != ""
        assert not self._cut or reason == "max_tokens", "a call whose input is no JSON object"
        assert reason != "tool_use" or called, "tool_use without a call"
        assert reason != "end_turn" or not called, "a call that nobody will run"

    def _see_message_stop(self, event: Event) -> None:
        assert event == {"type": "message_stop"}
        assert self._end is not None, "message_stop without message_delta"
        self.has_ended = True

    def _see_error(self, event: Event) -> None:
        assert set(event) == {"type", "error", "request_id", "b3os"}
        assert {"type", "message"} <= set(event["error"])
        self.has_ended = self.has_failed = True


def _check_usage(usage: Event) -> None:
    """No cache fields: clients add them to the whole prompt that `input_tokens` is."""
    assert set(usage) == {"input_tokens", "output_tokens"}
    assert all(type(count) is int and count >= 0 for count in usage.values())


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
