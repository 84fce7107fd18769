"""How deep the input of a call may be nested.

Decides the bound for what models write and for what clients send alike, so that an answer can always be sent back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MOST_LEVELS = 128
"""The input's own braces are the first. Templates read it as JSON again, and Python's reader ends at about 1000."""


def is_deeper(value: Any, levels: int = MOST_LEVELS) -> bool:
    """Whether a JSON value has containers on more levels than these. Linear, and without recursion."""
    containers = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        containers = [inner for outer in containers for inner in _inside(outer)]
        if not containers:
            return False
    return bool(containers)


def _inside(value: Any) -> Iterable[Any]:
    """The containers that stand one level deeper."""
    inner = value.values() if isinstance(value, dict) else value
    return [item for item in inner if isinstance(item, dict | list)]
