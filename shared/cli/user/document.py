"""JSON as the commands read and print it.

Decides that nothing the server sends is changed, and that what is printed is JSON for every reader: no NaN, no
infinite number, and ASCII alone, so that it can't move a terminal either. Pure. Must not know any document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

Document = dict[str, Any]


class NotJson(Exception):
    """The bytes are no JSON that can be passed on."""


def parse_json(raw: bytes | str) -> Any:
    """Any JSON value.

    Raises:
        NotJson: it is not JSON, too deep, or holds a number that JSON can't write.
    """
    try:
        return json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise NotJson from None


def render_json(document: object) -> str:
    """One line of ASCII. DEL is the one character below 128 that JSON lets through and terminals don't print."""
    return json.dumps(document).replace("\x7f", "\\u007f")


def dig(document: object, *names: str) -> Any:
    """What stands under these names, one inside the other; None where anything is missing or is no object."""
    for name in names:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document


def text_at(document: object, *names: str) -> str:
    """The string under these names, else an empty one."""
    found = dig(document, *names)
    return found if isinstance(found, str) else ""


def number_at(document: object, *names: str) -> int | None:
    """The whole number under these names, if there is one."""
    found = dig(document, *names)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def measure_at(document: object, *names: str) -> float | None:
    """The number under these names, if there is one that can be reckoned with: JSON's have no largest one."""
    found = dig(document, *names)
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    try:
        return float(found)
    except OverflowError:
        return None


def objects_at(document: object, name: str) -> list[Document]:
    """The objects of the list under a name; what else is in it is left out."""
    found = dig(document, name)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def plain(value: object) -> str:
    """A value for a reader: lists of words with commas, and anything deeper as JSON."""
    if value is None or value == []:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return render_json(value)


def flatten(document: object, path: tuple[str, ...] = ()) -> Iterable[tuple[str, str]]:
    """Dotted names and values of an object, in its order."""
    if isinstance(document, dict) and document:
        for name, value in document.items():
            yield from flatten(value, (*path, name))
    else:
        yield ".".join(path), plain(document)


def _refuse(_constant: str) -> NoReturn:
    raise ValueError


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value
