"""Words of others, made fit for a terminal.

Decides what a server or a model may do to the reader's screen: put characters on it, and nothing else. Pure. Must not
know where the words go.
"""

from __future__ import annotations

import re

LONGEST_LINE = 2000
# C0 but tab and newline, DEL, C1, separators that some terminals take for newlines, what turns the direction of the
# text around (so that "exe.txt" reads as "txt.exe"), and halves of surrogates, which no encoding can write.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SECRET = re.compile(r"b3os_(sk|pat)_[0-9A-Za-z_]+")


def tame(text: str) -> str:
    """Text of many lines in which each control character is a picture of itself: an escape reads as ␛.

    A carriage return vanishes: at the end of a line it says nothing, and elsewhere it would write over the line.
    """
    return _UNSAFE.sub(_picture, text)


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """The same in one line, bounded."""
    line = " ".join(tame(text[: longest + 1]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def redact(text: str) -> str:
    """Without keys and tokens: a server may tell back what it was sent."""
    return _SECRET.sub(r"b3os_\1_…", text)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x0D:
        return ""
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "\ufffd"
