"""Engine pieces to the events of a message: the block state machine.

Decides the grammar of a stream: it closes a block before it opens another, counts indexes up, and never drops the
piece that causes a switch. It neither awaits nor formats bytes, and does not know where the pieces come from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, assert_never

from node.engine.port import End, Piece, Started, Text, Thinking, ToolArguments, ToolEnd, ToolStart, Usage
from node.translate.stop import StopMatcher

Event = dict[str, Any]
BlockKind = Literal["text", "thinking", "tool_use"]


class MessageMachine:
    """Turns the pieces of one generation into events, once.

    Args:
        usage: the generation's live counts, read at the start and at the end.
        extension: makes the `b3os` object of the last `message_delta` when that is written.
    """

    def __init__(
        self,
        *,
        message_id: str,
        model: str,
        stops: Sequence[str],
        usage: Usage,
        extension: Callable[[], dict[str, Any]],
    ) -> None:
        self._message_id, self._model = message_id, model
        self._matcher = StopMatcher(stops)
        self._usage, self._extension = usage, extension
        self._index = -1
        self._open: BlockKind | None = None
        self._thought = hashlib.sha256()
        self._called_tool = False
        self.stop_reason: str | None = None
        """Why the answer ended; None while it goes on. Once set, no piece may be fed."""

    def feed(self, piece: Piece) -> list[Event]:
        """The events that follow from one piece."""
        match piece:
            case Started():
                return [self._message_start()]
            case Text(text):
                return self._text(text)
            case Thinking(text):
                held = self._show(self._matcher.flush())
                self._thought.update(text.encode())
                return [*held, *self._switch("thinking"), self._delta("thinking_delta", "thinking", text)]
            case ToolStart(id=call_id, name=name):
                held = self._show(self._matcher.flush())
                return [*held, *self._close(), self._start("tool_use", id=call_id, name=name, input={})]
            case ToolArguments(json):
                return [self._delta("input_json_delta", "partial_json", json)]
            case ToolEnd():
                self._called_tool = True
                return self._close()
            case End(reason):
                return self._end(reason)
            case _:
                assert_never(piece)

    def _text(self, text: str) -> list[Event]:
        shown, stop = self._matcher.feed(text)
        events = self._show(shown)
        return events if stop is None else events + self._finish("stop_sequence", stop)

    def _show(self, text: str) -> list[Event]:
        return [*self._switch("text"), self._delta("text_delta", "text", text)] if text else []

    def _end(self, reason: Literal["stop", "length"]) -> list[Event]:
        held = self._show(self._matcher.flush())
        if reason == "length":
            return held + self._finish("max_tokens")
        return held + self._finish("tool_use" if self._called_tool else "end_turn")

    def _finish(self, stop_reason: str, stop_sequence: str | None = None) -> list[Event]:
        events = self._close()
        if self._index < 0:  # an answer always has a block: SDKs read content[0]
            events += [*self._switch("text"), *self._close()]
        self.stop_reason = stop_reason
        usage = {"input_tokens": self._usage.input_tokens, "output_tokens": self._usage.output_tokens}
        delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
        return [
            *events,
            {"type": "message_delta", "delta": delta, "usage": usage, "b3os": self._extension()},
            {"type": "message_stop"},
        ]

    def _switch(self, kind: Literal["text", "thinking"]) -> list[Event]:
        """Open a block of this kind unless one is open."""
        if self._open == kind:
            return []
        if kind == "text":
            return [*self._close(), self._start("text", text="")]
        return [*self._close(), self._start("thinking", thinking="", signature="")]

    def _start(self, kind: BlockKind, **fields: Any) -> Event:
        self._open = kind
        self._index += 1
        return {
            "type": "content_block_start",
            "index": self._index,
            "content_block": {"type": kind, **fields},
        }

    def _close(self) -> list[Event]:
        """Close the open block, if there is one; a thinking block with its signature."""
        if self._open is None:
            return []
        events: list[Event] = []
        if self._open == "thinking":
            # Opaque to clients, and not empty: some drop a thinking block without a signature from the next turn.
            events = [self._delta("signature_delta", "signature", self._thought.hexdigest())]
            self._thought = hashlib.sha256()
        self._open = None
        return [*events, {"type": "content_block_stop", "index": self._index}]

    def _delta(self, kind: str, field: str, value: str) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": kind, field: value}}

    def _message_start(self) -> Event:
        return {
            "type": "message_start",
            "message": {
                "id": self._message_id,
                "type": "message",
                "role": "assistant",
                "model": self._model,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": self._usage.input_tokens, "output_tokens": 0},
            },
        }
