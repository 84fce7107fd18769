"""What can go wrong in `b3os dev`, each as one sentence for the person at the terminal.

Decides how a dead child's log becomes a sentence. Must not know who reads it.
"""

from __future__ import annotations

import json
import re

_REDIS_PREFIX = re.compile(r"^\d+:\w \d+ \w+ \d{4} [\d:.]+ [.\-*#] ")
_CLICK_PREFIX = "Error: "


class DevError(Exception):
    """The service can't start or go on; the message is one sentence."""


class AlreadyTold(DevError):
    """As above, and a child has said why on this terminal already."""


def parse_reason(log: str) -> str | None:
    """Why a process ended, from all that it wrote: its own last words, else its last log line.

    Our processes end with `b3os <part>: ...`, which may go on over more lines; others' last plain line serves.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    plain = [line for line in lines if _message_of(line) is None]
    ours = [number for number, line in enumerate(plain) if line.startswith("b3os ")]
    if ours:
        return "; ".join(plain[ours[-1] :]).replace(":; ", ": ")
    if plain:
        return _REDIS_PREFIX.sub("", plain[-1]).removeprefix(_CLICK_PREFIX)
    return _message_of(lines[-1]) if lines else None


def _message_of(line: str) -> str | None:
    """The message of one of our JSON log lines, or None."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return str(entry["message"]) if isinstance(entry, dict) and "message" in entry else None
