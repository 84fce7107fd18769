"""A call as Qwen3-Coder and Qwen3.5 write it: `<function=NAME>`, `<parameter=KEY>`, value, and their ends.

Decides where a value ends, since values hold files, and files hold markup. A value ends

- at `</parameter>`, if all that follows is white space and then what can follow a parameter: another one, or the end
  of the function, of the call or of the answer, or the next call;
- without its own end, at `</function>` before the end of the call or of the answer, or the next call;
- without its own end, at a line that begins with `<parameter=KEY>`, if the tool declares KEY and had none yet.

All else is content: an XML file with `<parameter>` elements, or half an end tag. A file that quotes a whole end of a
call is the one thing that can't be told apart. One line break belongs to the tags at each end of a value. Each check
looks at white space and one tag further, once, so the work is linear in the text.

Held: names, a tag that may be under way, white space after an end, and values that aren't strings (`values.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from node.engine.dialect.declared import is_declared, read_declared
from node.engine.dialect.json_text import encode
from node.engine.dialect.scan import Markers, word_at
from node.engine.dialect.spec import CALL, CALL_END, MOST_NAME_CHARS, not_a_call, unfinished
from node.engine.dialect.values import Value
from node.engine.port import Piece, ToolArguments, ToolEnd, ToolStart

_PARAMETER = "<parameter="
_PARAMETER_END = "</parameter>"
_FUNCTION_END = "</function>"
_IN_VALUE = Markers((_PARAMETER_END, _FUNCTION_END, _PARAMETER))
_IN_FUNCTION = (_PARAMETER, _FUNCTION_END, _PARAMETER_END, CALL_END, CALL)
_AFTER = {
    _PARAMETER_END: (_PARAMETER, _FUNCTION_END, CALL_END, CALL),
    _FUNCTION_END: (CALL_END, CALL),
}
_GAP = re.compile(r"[ \t\r\n]*+")


class XmlCall:
    """One call, from behind its `<function=` on.

    Args:
        schemas: of the tools, by name.
    """

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]], new_call_id: Callable[[], str]) -> None:
        self.is_over = False
        self._schemas, self._new_call_id = schemas, new_call_id
        self._schema: Mapping[str, Any] = {}
        self._state: Literal["name", "function", "key", "value", "end of value"] = "name"
        self._keys: set[str] = set()
        self._value: Value | None = None  # None for one that is dropped, since its key was given before
        self._is_fresh = False  # nothing of the value was seen, not even the line break of its tag
        self._has_content = False
        self._has_break = False  # a line break after the value so far: the value's own only if more follows
        self._end_tag = ""
        self._gap: list[str] = []  # after the end tag

    def feed(self, data: str, at: int, out: list[Piece]) -> int:
        """Append the pieces of what is sure from `at` on, and return where it ends; the rest is to come again.

        Raises:
            BrokenCall: this is no call. What came before the fault is in `out`.
        """
        while at < len(data) and not self.is_over:
            state, moved = self._state, at
            match state:
                case "name":
                    moved = self._read_name(data, at, out)
                case "function":
                    moved = self._read_function(data, at, out)
                case "key":
                    moved = self._read_key(data, at, out)
                case "value":
                    moved = self._read_value(data, at, out)
                case "end of value":
                    moved = self._read_end_of_value(data, at, out)
            if moved == at and state == self._state:
                break
            at = moved
        return at

    def finish(self, out: list[Piece]) -> None:
        """The model ended.

        Raises:
            BrokenCall: inside the call, or before it gave a parameter: that it takes none is not sure.
        """
        if self._state == "end of value":
            self._end_value(out)
        elif self._state != "function" or not self._keys:
            raise unfinished()
        self._end(out)

    def _read_name(self, data: str, at: int, out: list[Piece]) -> int:
        found = name_at(data, at)
        if found is None:
            return at
        name, end = found
        self._schema = self._schemas.get(name, {})
        self._state = "function"
        out.append(ToolStart(self._new_call_id(), name))
        return end

    def _read_function(self, data: str, at: int, out: list[Piece]) -> int:
        if gap := _GAP.match(data, at):
            at = gap.end()
        word = word_at(data, at, _IN_FUNCTION)
        if word == _PARAMETER:
            self._state = "key"
        elif word == _FUNCTION_END:
            self._end(out)
        elif word == CALL_END or (word == CALL and self._keys):
            self._end(out)
            return at
        elif word not in (_PARAMETER_END, ""):
            raise not_a_call()
        return at + len(word)

    def _read_key(self, data: str, at: int, out: list[Piece]) -> int:
        found = name_at(data, at)
        if found is None:
            return at
        key, end = found
        self._value = None
        if key not in self._keys:
            out.append(ToolArguments(("{" if not self._keys else ", ") + encode(key) + ": "))
            self._value = Value(read_declared(self._schema, key))
        self._keys.add(key)
        self._state, self._is_fresh, self._has_content, self._has_break = "value", True, False, False
        return end

    def _read_value(self, data: str, at: int, out: list[Piece]) -> int:
        if self._is_fresh:
            self._is_fresh = False
            if data[at] == "\n":
                return at + 1
        found = _IN_VALUE.find(data, at)
        end = found[0] if found else _IN_VALUE.hold_from(data, at)
        if end > at:
            self._content(data[at:end], out)
        if found is None:
            return end
        start, word = found
        if word == _PARAMETER:
            return self._read_next_parameter(data, start, out)
        self._end_tag, self._gap, self._state = word, [], "end of value"
        return start + len(word)

    def _read_next_parameter(self, data: str, at: int, out: list[Piece]) -> int:
        """Whether this tag is the next parameter's, while this one has no end."""
        end = at + len(_PARAMETER)
        if self._has_break or not self._has_content:
            name = data[end : end + MOST_NAME_CHARS + 1]
            key, closing, _ = name.partition(">")
            if "\n" not in key and "<" not in key:
                if not closing and len(name) <= MOST_NAME_CHARS:
                    return at
                if closing and key.strip() not in self._keys and is_declared(self._schema, key.strip()):
                    self._end_value(out)
                    return at
        self._content(_PARAMETER, out)
        return end

    def _read_end_of_value(self, data: str, at: int, out: list[Piece]) -> int:
        if gap := _GAP.match(data, at):
            self._gap.append(gap.group())
            at = gap.end()
        if at == len(data):
            return at
        word = word_at(data, at, _AFTER[self._end_tag])
        if word is None:
            self._content(self._end_tag + "".join(self._gap), out)
            self._state = "value"
        elif word:
            self._end_value(out)
            if self._end_tag == _FUNCTION_END:
                self._end(out)
        return at

    def _content(self, text: str, out: list[Piece]) -> None:
        """More of the value; a line break at its end waits for what comes behind it."""
        if self._has_break:
            text = "\n" + text
        self._has_content = True
        self._has_break = text[-1] == "\n"
        if self._value is not None and (json := self._value.add(text[:-1] if self._has_break else text)):
            out.append(ToolArguments(json))

    def _end_value(self, out: list[Piece]) -> None:
        if self._value is not None and (json := self._value.end()):
            out.append(ToolArguments(json))
        self._value, self._state = None, "function"

    def _end(self, out: list[Piece]) -> None:
        out += [ToolArguments("}" if self._keys else "{}"), ToolEnd()]
        self.is_over = True


def name_at(data: str, at: int) -> tuple[str, int] | None:
    """The name that begins here, and where its tag ends; None if it goes on.

    Raises:
        BrokenCall: this is no name.
    """
    written, closing, _ = data[at : at + MOST_NAME_CHARS + 1].partition(">")
    name = written.strip()
    if "<" in name or "\n" in name or (closing and not name) or (not closing and len(written) > MOST_NAME_CHARS):
        raise not_a_call()
    return (name, at + len(written) + 1) if closing else None
