"""Where one event of a stream ends and the next begins.

Decides which bytes of a stream may be sent on, so that the stream can be ended cleanly at any time. Must not know
what events mean, but for the two that end a stream.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from shared.errors import NODE_UNAVAILABLE, ApiError, anthropic_body

MAX_FRAME_BYTES = 8 << 20
_END = b"\n\n"  # nodes write LF alone (HTML Living Standard §9.2.5 would allow CR and CRLF)
# JSON escapes line feeds, so a line that begins like this is never part of a text.
_TERMINAL = (b"\nevent: message_stop\n", b"\nevent: error\n")
# Within a stream the seed's clients know `api_error`; `overloaded_error` would have them wait for nothing.
_NODE_LOST = replace(NODE_UNAVAILABLE, anthropic_type="api_error")


class FrameTooLong(Exception):
    """A frame did not end within `MAX_FRAME_BYTES`."""


class FrameCutter:
    """Passes complete frames, and holds back the beginning of the next.

    Attributes:
        has_ended: whether the terminal event was among the frames passed.
    """

    __slots__ = ("_held", "has_ended")

    def __init__(self) -> None:
        self._held = bytearray()
        self.has_ended = False

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk and return the frames that are complete now, perhaps none.

        Raises:
            FrameTooLong: what is held back has grown beyond all reason.
        """
        searched_from = max(0, len(self._held) - 1)
        self._held += chunk
        end = self._held.rfind(_END, searched_from)
        if end < 0:
            if len(self._held) > MAX_FRAME_BYTES:
                raise FrameTooLong
            return b""
        frames = bytes(self._held[: end + len(_END)])
        del self._held[: end + len(_END)]
        self.has_ended = self.has_ended or _is_terminal(frames)
        return frames


def _is_terminal(frames: bytes) -> bool:
    return any(line in frames or frames.startswith(line[1:]) for line in _TERMINAL)


def render_broken(request_id: str, message: str) -> bytes:
    """The event that ends a stream in the place of its node."""
    error = ApiError(_NODE_LOST, message)
    return b"event: error\ndata: " + orjson.dumps(anthropic_body(error, request_id)) + _END
