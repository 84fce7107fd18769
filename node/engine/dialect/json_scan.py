"""Follows a JSON value as it is written, and passes it on.

Decides strictly what JSON is (RFC 8259, and numbers that a double holds), so that what was passed on, once complete,
is sure to parse. It mends two things that models write: raw control characters in strings, which xgrammar lets
through where a schema bounds a string's length, and halves of surrogate pairs. Must not know calls.

A step costs the same wherever it stands: the state is a stack of brackets and a word. Strings pass in chunks; only an
unfinished number, word or escape stays with the caller.
"""

from __future__ import annotations

import math
import re
from typing import Literal

from node.engine.dialect.json_text import escape
from node.engine.dialect.spec import not_json
from node.json_levels import MOST_LEVELS

_PLAIN = re.compile(r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+')
_GAP = re.compile(r"[ \t\n\r]*+")
_ATOM = re.compile(r"[-+.0-9A-Za-z]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?")
_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_LOW_HALF = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_START_OF_LOW_HALF = re.compile(r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?")
_CLOSERS = {"{": "}", "[": "]"}
_MOST_ATOM_CHARS = 400


class JsonScan:
    """One JSON value."""

    def __init__(self) -> None:
        self.is_done = False
        self._closers: list[str] = []  # what closes the open brackets, innermost last
        self._expects: Literal["value", "value or ]", "key", "key or }", ":", ", or end"] = "value"
        self._in_string = False

    def feed(self, data: str, at: int, parts: list[str]) -> int:
        """Append to `parts` what is sure from `at` on, and return where it ends, which is at the latest where the
        value does. What lies behind is to come again, with more.

        Raises:
            BrokenCall: this is not JSON. What came before the fault is in `parts`.
        """
        start, end = at, len(data)
        try:
            while at < end and not self.is_done:
                if self._in_string:
                    at = _end(_PLAIN, data, at)
                    if at == end:
                        break
                    if data[at] == '"':
                        self._in_string = False
                        at += 1
                        if self._expects != ":":
                            self._after_value()
                        continue
                    taken, text = _mended(data, at)
                    if not taken:
                        break
                    parts.append(data[start:at] + text)
                    at += taken
                    start = at
                    continue
                at = _end(_GAP, data, at)
                if at == end:
                    break
                taken = self._token(data, at)
                if not taken:
                    break
                at += taken
        finally:
            parts.append(data[start:at])
        return at

    def _token(self, data: str, at: int) -> int:
        """How many characters the token outside strings takes; 0 if it may go on."""
        char, expects = data[at], self._expects
        if char == '"':
            if expects in ("key", "key or }"):
                self._expects = ":"
            elif expects not in ("value", "value or ]"):
                raise not_json()
            self._in_string = True
        elif expects == ":" and char == ":":
            self._expects = "value"
        elif expects == ", or end" and char == ",":
            self._expects = "key" if self._closers[-1] == "}" else "value"
        elif char in "}]":
            self._close(char)
        elif expects not in ("value", "value or ]"):
            raise not_json()
        elif char in "{[":
            self._open(char)
        else:
            return self._atom(data, at)
        return 1

    def _open(self, bracket: str) -> None:
        if len(self._closers) == MOST_LEVELS:
            raise not_json()
        self._closers.append(_CLOSERS[bracket])
        self._expects = "key or }" if bracket == "{" else "value or ]"

    def _close(self, bracket: str) -> None:
        is_here = self._expects in (", or end", f"key or {bracket}", f"value or {bracket}")
        if not is_here or not self._closers or self._closers.pop() != bracket:
            raise not_json()
        self._after_value()

    def _after_value(self) -> None:
        self._expects = ", or end"
        self.is_done = not self._closers

    def _atom(self, data: str, at: int) -> int:
        """A number or a word: only what comes next tells that it is complete."""
        end = _end(_ATOM, data, at)
        if end - at > _MOST_ATOM_CHARS:
            raise not_json()
        if end == len(data):
            return 0
        atom = data[at:end]
        if atom not in ("true", "false", "null") and not (_NUMBER.fullmatch(atom) and math.isfinite(float(atom))):
            raise not_json()
        self._after_value()
        return end - at


def _mended(data: str, at: int) -> tuple[int, str]:
    """How many characters of a string need care, and what stands for them; none if more must be seen."""
    if data[at] != "\\":
        return 1, escape(data[at])
    if len(data) == at + 1 or (data[at + 1] == "u" and len(data) < at + 6):
        return 0, ""
    found = _UNICODE.match(data, at)
    if found is None:
        raise not_json()
    code = int(found[1], 16)
    if not 0xD800 <= code <= 0xDFFF:
        return 6, found[0]
    if code < 0xDC00:
        if _LOW_HALF.match(data, at + 6):
            return 12, data[at : at + 12]
        if len(data) < at + 12 and _START_OF_LOW_HALF.fullmatch(data, at + 6):
            return 0, ""
    return 6, "\\ufffd"


def _end(pattern: re.Pattern[str], data: str, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at
