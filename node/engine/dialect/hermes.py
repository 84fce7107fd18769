"""A call as Hermes and Qwen3 write it: `{"name": "x", "arguments": {…}}`.

Decides what may vary: the order of the keys, `parameters` for `arguments`, arguments that are JSON in a string or are
missing, other keys, and a last brace that was forgotten. Arguments stream as they stand; they are held only while the
name isn't known, or where they are a string. Must not know tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from node.engine.dialect.json_scan import JsonScan
from node.engine.dialect.json_text import decode, encode
from node.engine.dialect.spec import MOST_NAME_CHARS, not_a_call, not_json, unfinished
from node.engine.port import Piece, ToolArguments, ToolEnd, ToolStart

_GAP = re.compile(r"[ \t\r\n]*+")
_SHORT_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ARGUMENTS = ("arguments", "parameters")


class HermesCall:
    """One call, from its first brace on."""

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self.is_over = False
        self._new_call_id = new_call_id
        self._expects: Literal["{", "key or }", "key", ":", "value", "rest of value", ", or }"] = "{"
        self._key = ""
        self._scan = JsonScan()  # of the value that is being read
        self._name = ""
        self._early: list[str] = []  # arguments that came before the name
        self._whole: list[str] | None = None  # arguments that can't stream
        self._has_arguments = False

    def feed(self, data: str, at: int, out: list[Piece]) -> int:
        """Append the pieces of what is sure from `at` on, and return where it ends; the rest is to come again.

        Raises:
            BrokenCall: this is no call. What came before the fault is in `out`.
        """
        while at < len(data):
            expects = self._expects
            moved = self._read(data, at, out)
            if self.is_over or (moved == at and expects == self._expects):
                return moved
            at = moved
        return at

    def finish(self, out: list[Piece]) -> None:
        """The model ended.

        Raises:
            BrokenCall: inside the call.
        """
        if not self._is_complete():
            raise unfinished()
        self._end(out)

    def _is_complete(self) -> bool:
        """Whether only the last brace is missing."""
        return self._expects == ", or }" and bool(self._name) and self._has_arguments

    def _read(self, data: str, at: int, out: list[Piece]) -> int:
        if self._expects == "rest of value":
            return self._read_value(data, at, out)
        if gap := _GAP.match(data, at):
            at = gap.end()
        return self._read_token(data, at, out) if at < len(data) else at

    def _read_token(self, data: str, at: int, out: list[Piece]) -> int:
        char = data[at]
        match self._expects:
            case "key or }" | "key" if char == '"':
                return self._read_key(data, at)
            case "value":
                return self._begin_value(data, at, out)
            case "{" if char == "{":
                self._expects = "key or }"
            case ":" if char == ":":
                self._expects = "value"
            case ", or }" if char == ",":
                self._expects = "key"
            case "key or }" | ", or }" if char == "}":
                self._end(out)
            case ", or }" if char == "<" and self._is_complete():
                self._end(out)
                return at
            case _:
                raise not_json()
        return at + 1

    def _read_key(self, data: str, at: int) -> int:
        found = _short_string(data, at)
        if found is None:
            return at
        key, end = found
        self._key = "arguments" if key in _ARGUMENTS else key
        if (self._key == "name" and self._name) or (self._key == "arguments" and self._has_arguments):
            raise not_a_call()
        self._expects = ":"
        return end

    def _begin_value(self, data: str, at: int, out: list[Piece]) -> int:
        if self._key == "name":
            return self._read_name(data, at, out)
        if self._key == "arguments":
            if data[at] not in '{"n':
                raise not_a_call()
            self._whole = None if data[at] == "{" else []
        self._scan, self._expects = JsonScan(), "rest of value"
        return at

    def _read_name(self, data: str, at: int, out: list[Piece]) -> int:
        if data[at] != '"':
            raise not_a_call()
        found = _short_string(data, at)
        if found is None:
            return at
        self._name, end = found
        if not self._name:
            raise not_a_call()
        out.append(ToolStart(self._new_call_id(), self._name))
        if self._early:
            out.append(ToolArguments("".join(self._early)))
        self._expects = ", or }"
        return end

    def _read_value(self, data: str, at: int, out: list[Piece]) -> int:
        parts: list[str] = []
        try:
            at = self._scan.feed(data, at, parts)
        finally:
            if self._key == "arguments" and (json := "".join(parts)):
                if self._whole is not None:
                    self._whole.append(json)
                else:
                    self._show(json, out)
        if self._scan.is_done:
            self._expects = ", or }"
            if self._key == "arguments":
                self._end_arguments(out)
        return at

    def _end_arguments(self, out: list[Piece]) -> None:
        """Arguments that are a string hold the object's JSON; null ones are as if missing."""
        if self._whole is not None:
            arguments = _object_in("".join(self._whole))
            if arguments is None:
                return
            self._show(arguments, out)
        self._has_arguments = True

    def _show(self, json: str, out: list[Piece]) -> None:
        if self._name:
            out.append(ToolArguments(json))
        else:
            self._early.append(json)

    def _end(self, out: list[Piece]) -> None:
        if not self._name:
            raise not_a_call()
        if not self._has_arguments:  # and the model closed the call: it takes none
            out.append(ToolArguments("{}"))
        out.append(ToolEnd())
        self.is_over = True


def _short_string(data: str, at: int) -> tuple[str, int] | None:
    """The string that begins here, and where it ends; None if it goes on."""
    found = _SHORT_STRING.match(data, at)
    end = found.end() if found else len(data)
    if end - at > MOST_NAME_CHARS:
        raise not_a_call()
    if found is None:
        return None
    try:
        return decode(found.group()).encode("utf-8", "replace").decode(), end
    except ValueError:
        raise not_json() from None


def _object_in(json: str) -> str | None:
    try:
        text = decode(json)
        arguments = None if text is None else decode(text)
        if arguments is not None and not isinstance(arguments, dict):
            raise not_a_call()
        return None if arguments is None else encode(arguments)
    except ValueError:
        raise not_json() from None
