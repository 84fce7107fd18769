"""Which model a request names, as far as a look at its bytes tells, before anybody has paid for reading it.

Decides which of the names that stand there is likeliest. Must not know who serves what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

WINDOW_BYTES = 65_536
"""As much is looked at from the beginning and from the end of a body; all of it only if no name stands there."""
MOST_NAMES = 64
MESSAGES = re.compile(rb'"messages"\s{0,8}:\s{0,8}\[\s{0,8}')
_MODEL = re.compile(rb'"model"\s{0,8}:\s{0,8}"((?:[^"\\]|\\.){1,200})"')


def cut_windows(body: bytes) -> list[bytes]:
    """The parts of a body that are looked at."""
    return [body] if len(body) <= 2 * WINDOW_BYTES else [body[:WINDOW_BYTES], body[-WINDOW_BYTES:]]


def look_for_models(body: bytes) -> tuple[str, ...]:
    """The names that may be the model's, the likeliest first.

    Names within a conversation are in the inputs of calls. So one that stands before the messages is the request's,
    or else the last one.
    """
    found = _find(cut_windows(body))
    if not found:
        return _last_name(body)
    messages = MESSAGES.search(body[:WINDOW_BYTES])
    is_before = messages is None or found[0][0] < messages.start()
    names = [name for _, name in (found if is_before else found[::-1])]
    return tuple(dict.fromkeys(names))


def read_model(body: bytes) -> str | None:
    """The model's name. Where that isn't clear, a body that takes a millisecond at most is read as JSON."""
    names = look_for_models(body)
    if len(names) == 1 or len(body) > 2 * WINDOW_BYTES:
        return names[0] if names else None
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    name = read.get("model") if isinstance(read, dict) else None
    return name if isinstance(name, str) else None


def _find(parts: list[bytes]) -> list[tuple[int, str]]:
    """Where a name stands in its part, and the name; those of the last part come after all others."""
    found: list[tuple[int, str]] = []
    for number, part in enumerate(parts):
        matches = list(_some(part))
        found += [(match.start() + number * WINDOW_BYTES, _unescape(match[1])) for match in matches]
    return found


def _last_name(body: bytes) -> tuple[str, ...]:
    """The last name in all of a body, if it is among the last few places that look like one."""
    end = len(body)
    for _ in range(MOST_NAMES):
        end = body.rfind(b'"model"', 0, end)
        if end < 0:
            break
        if match := _MODEL.match(body, end):
            return (_unescape(match[1]),)
    return ()


def _some(part: bytes) -> Iterator[re.Match[bytes]]:
    """The first names of a part, and its last ones: what is between counts for nothing."""
    matches = []
    for match in _MODEL.finditer(part):
        matches.append(match)
        if len(matches) > MOST_NAMES:
            del matches[MOST_NAMES // 2]
    return iter(matches)


def _unescape(raw: bytes) -> str:
    """Some clients write `b3os\\/name`."""
    if b"\\" not in raw:
        return raw.decode(errors="replace")
    try:
        return str(orjson.loads(b'"%b"' % raw))
    except orjson.JSONDecodeError:
        return ""
