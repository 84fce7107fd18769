"""The text of an XML parameter as JSON, as it comes in.

Decides what streams: what is surely a string. Anything else is held to its end, since only then is it known whether
it is the JSON that its schema asks for; where a string is allowed, too, holding ends as soon as the text can't be
another type. What isn't the JSON asked for is sent as the string that it is: the agent's own check tells the model,
and nothing the model wrote is lost. Must not know tags.
"""

from __future__ import annotations

from typing import Any, Literal

from node.engine.dialect.declared import Declared, type_of
from node.engine.dialect.json_text import decode, encode, escape
from node.json_levels import MOST_LEVELS

_MOST_SCALAR_CHARS = 64
_FIRST_CHARS = {
    "object": "{",
    "array": "[",
    "integer": "-0123456789",
    "number": "-0123456789",
    "boolean": "tfTF",
    "null": "nN",
    "string": "",
}
_ANY_FIRST_CHAR = "".join(_FIRST_CHARS.values())
_EXACT_BELOW = 2**53
"""Doubles up to here are integers without doubt."""


class Value:
    """One parameter's value."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._held: list[str] = []
        self._state: Literal["undecided", "held", "streaming"] = "held"
        self._start = ""  # what came while undecided
        if declared.may_be_text and declared.members is None:
            self._state = "undecided"
            types = declared.types
            self._other_starts = "".join(map(_FIRST_CHARS.__getitem__, types)) if types else _ANY_FIRST_CHAR

    def add(self, text: str) -> str:
        """The JSON that is sure with this, which is often none."""
        if self._declared.is_bounded:
            # A byte that is no UTF-8 by itself is none of the characters that a grammar counts.
            text = text.replace("\ufffd", "")
        if self._state == "streaming":
            return escape(text)
        if self._state == "held":
            self._held.append(text)
            return ""
        self._start += text
        self._state = self._decide(self._start)
        if self._state == "streaming":
            return '"' + escape(self._start)
        if self._state == "held":
            self._held.append(self._start)
        return ""

    def end(self) -> str:
        """The rest of the JSON."""
        if self._state == "streaming":
            return '"'
        return to_json(self._start if self._state == "undecided" else "".join(self._held), self._declared)

    def _decide(self, start: str) -> Literal["undecided", "held", "streaming"]:
        if not self._other_starts:
            return "streaming"
        rest = start.lstrip()
        first = rest[:1]
        if first and first not in self._other_starts:
            return "streaming"
        if first and first in "{[" and len(start) - len(rest) <= _MOST_SCALAR_CHARS:
            return "held"
        return "undecided" if len(start) <= _MOST_SCALAR_CHARS else "streaming"


def to_json(raw: str, declared: Declared) -> str:
    """A whole value: as what its schema asks for if it can be that, else as a string."""
    if declared.members is not None:
        stripped = raw.strip()
        if raw in declared.members or stripped in declared.members:
            return encode(raw if raw in declared.members else stripped)
    try:
        value = _fitting(decode(raw.strip(), MOST_LEVELS - 1), declared.types)  # within the input's own braces
        if declared.may_be_text and not _is_other(value, declared.types):
            return encode(raw)
        return encode(value)
    except ValueError:
        return encode(raw)


def _fitting(value: Any, types: frozenset[str]) -> Any:
    if (
        isinstance(value, float)
        and "integer" in types
        and "number" not in types
        and value.is_integer()
        and abs(value) < _EXACT_BELOW
    ):
        return int(value)
    return value


def _is_other(value: Any, types: frozenset[str]) -> bool:
    """Whether a value is of a declared type that isn't string; where none is declared, of any such type."""
    kind = type_of(value)
    if kind == "string":
        return False
    return not types or kind in types or (kind == "integer" and "number" in types)
