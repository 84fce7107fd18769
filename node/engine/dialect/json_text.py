"""JSON as models may write it, and JSON as it is sent on.

Decides that no number is infinite and that no character is half a pair: both pass `json`, and neither can be sent.
Must not know calls.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from node.json_levels import MOST_LEVELS, is_deeper

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# A string that isn't closed matches too, or every quote in it would be tried as the start of one.
_PYTHON_WORD = re.compile(r'"(?:[^"\\]++|\\.)*+"?|\b(?:True|False|None)\b', re.DOTALL)
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def encode(value: Any) -> str:
    """A value as JSON text.

    Raises:
        ValueError: it is nested too deep.
    """
    try:
        return _LONE_SURROGATE.sub("\ufffd", _encode(value))
    except RecursionError:
        raise ValueError("nested too deep") from None


def escape(text: str) -> str:
    """Text as it stands between the quotes of a string. Chunks may be escaped one by one."""
    return _LONE_SURROGATE.sub("\ufffd", _encode(text)[1:-1])


def decode(text: str, levels: int = MOST_LEVELS) -> Any:
    """The value of JSON text, which may have raw line breaks in its strings, and Python's words for JSON's.

    Raises:
        ValueError: it is not JSON, has a number out of range, or is nested deeper than `levels`.
    """
    try:
        return _decode(text, levels)
    except ValueError:
        replaced = _PYTHON_WORD.sub(lambda found: _JSON_WORDS.get(found[0], found[0]), text)
        if replaced == text:
            raise
    return _decode(replaced, levels)


def _decode(text: str, levels: int) -> Any:
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if is_deeper(value, levels):
        raise ValueError("nested too deep")
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number out of range")
    return number


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse, strict=False)
