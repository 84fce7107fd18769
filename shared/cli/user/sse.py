"""Server-sent events, from bytes to events (WHATWG HTML, 9.2.6).

Decides where a line and an event end, whatever the pieces they come in. Pure. Must not know what the data says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_BYTES = 16 * 1024 * 1024
"""Of one event: the largest of ours is some kilobytes."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """A line or an event that does not end."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event; without an `event:` line its name is `message`."""

    name: str
    data: str


class SseParser:
    """Feed it bytes; an event that is not ended with an empty line is never given, as the standard says."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._name = ""
        self._data: list[str] = []
        self._data_bytes = 0
        self._is_first_line = True
        self._skips_newline = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that end in this chunk.

        Raises:
            EventTooLong: more came than any event needs.
        """
        events: list[ServerSentEvent] = []
        if self._skips_newline and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skips_newline = False
        begin = 0
        for end in _LINE_END.finditer(chunk):
            self._hold(chunk[begin : end.start()])
            events += self._end_line()
            begin = end.end()
            # The second half of \r\n may be what the next chunk begins with; the line is over already.
            self._skips_newline = end[0] == b"\r" and begin == len(chunk)
        self._hold(chunk[begin:])
        return events

    def _hold(self, part: bytes) -> None:
        self._line += part
        if len(self._line) + self._data_bytes > MOST_BYTES:
            raise EventTooLong

    def _end_line(self) -> list[ServerSentEvent]:
        line = bytes(self._line)
        self._line.clear()
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if line:
            self._read_field(line)
            return []
        name, data = self._name, self._data
        self._name, self._data, self._data_bytes = "", [], 0
        return [ServerSentEvent(name or "message", "\n".join(data))] if data else []

    def _read_field(self, line: bytes) -> None:
        field, _, raw = line.partition(b":")
        value = raw.removeprefix(b" ").decode(errors="replace")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(raw) + 1
        elif field == b"event":
            self._name = value
