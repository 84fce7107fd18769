"""An answer as it arrives, from events to words.

Decides which events are words, and when an answer is whole. Pure. Must not know how words are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shared.cli.user.document import Document, dig, measure_at, number_at, text_at
from shared.cli.user.refusal import Refusal, parse_error_event


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of an answer."""

    kind: Literal["thinking", "text"]
    text: str


@dataclass(slots=True)
class Transcript:
    """Feed it events; then read how the answer ended.

    Attributes:
        is_whole: the last event has come. error: what ended it instead.
        counts: `usage`, of which later events know more. total_ms: as the server measured it.
    """

    request_id: str
    is_whole: bool = False
    error: Refusal | None = None
    stop_reason: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    total_ms: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing that follows belongs to the answer: a server may hold the connection open all the same."""
        return self.is_whole or self.error is not None

    def feed(self, event: Document) -> Words | None:
        """The words of one event, if it has any."""
        match text_at(event, "type"):
            case "message_start":
                self._count(dig(event, "message", "usage"))
            case "content_block_delta":
                return _words_of(dig(event, "delta"))
            case "message_delta":
                self.stop_reason = text_at(event, "delta", "stop_reason")
                self._count(dig(event, "usage"))
                self.total_ms = measure_at(event, "b3os", "timing", "total_ms")
            case "message_stop":
                self.is_whole = True
            case "error":
                self.error = parse_error_event(event, self.request_id)
            case _:  # pings, and what is not words
                pass
        return None

    def render_usage(self) -> str:
        """What it took, in a line."""
        parts = [f"{self.counts.get(name, 0)} {name.removesuffix('_tokens')}" for name in _COUNTED]
        line = f"tokens: {', '.join(parts)}"
        return line if self.total_ms is None else f"{line}; {self.total_ms / 1000:.1f} s"

    def _count(self, usage: object) -> None:
        for name in _COUNTED:
            count = number_at(usage, name)
            if count is not None:
                self.counts[name] = count


_COUNTED = ("input_tokens", "output_tokens")


def _words_of(delta: object) -> Words | None:
    match text_at(delta, "type"):
        case "text_delta":
            return Words("text", text_at(delta, "text"))
        case "thinking_delta":
            return Words("thinking", text_at(delta, "thinking"))
        case _:
            return None
