"""Formats of strings, as patterns that we wrote: a part of what each allows, never more.

`pattern` and `format` together are what zod writes for many formats. `format` is then an annotation, except where the
pattern can't be enforced and is known to allow all that our own does.
"""

from __future__ import annotations

from functools import cache

from node.schema.pattern import Node, parse_pattern

ANNOTATIONS = frozenset({"password", "binary", "byte", "markdown", "html", "text", "textarea", "multiline", "color"})
"""Formats that say how a string is shown or stored."""

_DATE = (
    r"(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_SEGMENT = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_PLAIN = r"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})"
_TAIL = rf"(?:\?(?:{_SEGMENT}|[/?])*)?(?:#(?:{_SEGMENT}|[/?])*)?"
_HOST = r"[A-Za-z0-9]{1,28}(?:-[A-Za-z0-9]{1,28})?(?:\.[A-Za-z0-9]{1,28}(?:-[A-Za-z0-9]{1,28})?){0,3}"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{_HOST}(?::\d{{1,4}})?(?:/{_SEGMENT}*)*|{_SEGMENT}+(?:/{_SEGMENT}*)*){_TAIL}"
_HEX = r"[0-9a-fA-F]{1,4}"
_DAYS = r"\d+(?:D|W|M(?:\d+D)?|Y(?:\d+M(?:\d+D)?)?)"
_HOURS = r"T\d+(?:S|M(?:\d+S)?|H(?:\d+M(?:\d+S)?)?)"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"

_PATTERNS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:{_DAYS.replace('W|', '')}(?:{_HOURS})?|{_HOURS}|\\d+W)",
    "email": (
        r"[A-Za-z0-9_+-]{1,31}(?:\.[A-Za-z0-9_+-]{1,31})?"
        r"@(?:[A-Za-z0-9]{1,28}(?:-[A-Za-z0-9]{1,28})?\.){1,3}[A-Za-z]{2,8}"
    ),
    "hostname": _HOST,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": rf"(?:(?:{_HEX}:){{7}}{_HEX}|(?:{_HEX}:){{1,6}}:{_HEX}|::(?:{_HEX}(?::{_HEX}){{0,5}})?)",
    "uuid": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
    "uri": _URI,
    "uri-reference": rf"(?:{_URI}|/?{_PLAIN}+(?:/{_SEGMENT}*)*{_TAIL})",
    "json-pointer": r"(?:/(?:[^/~]|~[01])*)*",
}
_WIDER = {
    "email": frozenset(
        {
            r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
            r"^(?:(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,})$",
        }
    )
}


@cache
def find_format(name: str) -> Node | None:
    """What strings of a format look like; None for one that we don't know."""
    found = _PATTERNS.get(name)
    return None if found is None else parse_pattern(f"^(?:{found})$")


def is_implied(pattern: str, name: object) -> bool:
    """Whether a pattern that can't be enforced holds for everything that we write for a format."""
    return isinstance(name, str) and pattern in _WIDER.get(name, ())
