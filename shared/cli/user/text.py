"""Words of others, made fit for a terminal.

Decides what a server or a model may do to the reader's screen: put characters on it, and nothing else. Pure. Must not
know where the words go.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_LINE = 2000
_UNSAFE = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
"""Control and format characters (some turn the direction of the text around, so that "exe.txt" reads as "txt.exe",
and some are seen nowhere), what has none but a private meaning, halves of surrogates, which no encoding can write,
and separators that some terminals take for newlines."""
_NEEDED = set("\t\n\u200c\u200d")
"""ZWNJ and ZWJ join letters of some scripts, and emoji."""
_SECRET = re.compile(r"b3os_(sk|pat)_[0-9A-Za-z_]+")


def tame(text: str) -> str:
    """Text of many lines in which each control character is a picture of itself: an escape reads as ␛.

    A carriage return vanishes: at the end of a line it says nothing, and elsewhere it would write over the line.
    """
    return text.translate(_SHOWN)


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """The same in one line, bounded."""
    line = " ".join(tame(text[: longest + 1]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def redact(text: str) -> str:
    """Without keys and tokens: a server may tell back what it was sent."""
    return _SECRET.sub(r"b3os_\1_…", text)


class _Shown(dict[int, str]):
    """What stands for each character; one is looked at when it first comes."""

    def __missing__(self, code: int) -> str:
        shown = self[code] = _show(code)
        return shown


_SHOWN = _Shown()


def _show(code: int) -> str:
    character = chr(code)
    if character in _NEEDED or unicodedata.category(character) not in _UNSAFE:
        return character
    if code == 0x0D:
        return ""
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "\ufffd"
