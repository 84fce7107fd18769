"""The rules of one grammar, each written once, and how characters are spelled in them.

Decides the shapes that xgrammar is quick with: a loop over characters that may be escaped is a rule that ends in
itself, since a starred rule costs 15 ms a token; a longest length is `max_chars`, which is counted while the model
writes, since states for it cost seconds. Must not know forms.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.schema import chars
from node.schema.chars import Ranges
from node.schema.refusal import unenforceable
from shared.errors import ApiError

BLANK = "[ \\n]?"
"""White space where JSON allows it: models that are weak write it without end if they may."""
_ESCAPED = chars.union(chars.CONTROL, chars.of('"\\'))
_SHORT = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", '"': '"', "\\": "\\"}
_ANY_ESCAPE = '"\\\\" (["\\\\/bfnrt] | "u" ([0-9a-cA-CeEfF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))'
MOST_RULES = 20_000
MOST_CHARS = 1 << 20


class Rules:
    """Grows with what is asked of it, up to a bound.

    Args:
        path: what is to be blamed where that is too much.
    """

    def __init__(self, path: str = "tools") -> None:
        self._path, self._chars = path, 0
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.shared: dict[str, tuple[str, str]] = {}
        """Rules of which every form makes use."""

    def add(self, body: str, attribute: str = "") -> str:
        """The name of the rule with this body."""
        known = f"{attribute}{body}"
        if known not in self._names:
            self._names[known] = self.declare()
            self.define(self._names[known], body, attribute)
        return self._names[known]

    def declare(self) -> str:
        """A name, whose rule comes later.

        Raises:
            ApiError: there are too many.
        """
        if len(self._bodies) >= MOST_RULES:
            raise self._too_much()
        name = f"r{len(self._bodies)}"
        self._bodies[name] = ""
        return name

    def define(self, name: str, body: str, attribute: str = "") -> None:
        """The rule of a declared name.

        Raises:
            ApiError: they are too long together.
        """
        self._bodies[name] = f"{name}{attribute} ::= {body}"
        self._chars += len(self._bodies[name]) + 1
        if self._chars > MOST_CHARS:
            raise self._too_much()

    def _too_much(self) -> ApiError:
        return unenforceable(self._path, "so much at once")

    def loop(self, step: str) -> str:
        """Any number of steps; none too."""
        known = f"({step})*"
        if known not in self._names:
            name = self._names[known] = self.declare()
            self.define(name, " | ".join(['""', *(f"{one} {name}" for one in step.split(" | "))]))
        return self._names[known]

    def run(self, step: str, least: int, most: int | None) -> str:
        """So many steps, each of which is one character at least."""
        name = self.loop(step)
        for _ in range(least):
            name = self.add(" | ".join(f"{one} {name}" for one in step.split(" | ")))
        return name if most is None else self.add(name, f"[max_chars={most}]")

    def text(self, root: str) -> str:
        """The whole grammar."""
        return "\n".join([*self._bodies.values(), f"root ::= {root}"])


def quote(text: str) -> str:
    """A text as it stands."""
    return '"' + "".join(map(_spelled, text)) + '"'


def char_class(ranges: Ranges) -> str:
    """One character of a set, as it stands."""
    spans = (f"{_escape(low)}-{_escape(high)}" if low < high else _escape(low) for low, high in ranges)
    return "[" + "".join(spans) + "]"


def json_char(ranges: Ranges, escapes: Rules | None) -> str:
    """One character of a set in a JSON string: alternatives, none of which is a group.

    Args:
        escapes: where a set has both kinds, whether those that must be escaped are among the alternatives. Without
            them the set is a plain one, which costs less.
    """
    plain, escaped = chars.without(ranges, _ESCAPED), chars.both(ranges, _ESCAPED)
    options = [char_class(plain)] if plain else []
    if ranges == chars.ANY and escapes is not None:
        return " | ".join([*options, escapes.add(_ANY_ESCAPE)])
    if escaped and (escapes is not None or not plain):
        spelled = [_json_escape(code) for low, high in escaped for code in range(low, high + 1)]
        options += [quote(one) for one in spelled] if escapes is None else [escapes.add(_one_of(spelled))]
    return " | ".join(options)


def _one_of(texts: Iterable[str]) -> str:
    return " | ".join(map(quote, texts))


def _json_escape(code: int) -> str:
    char = chr(code)
    return f"\\{_SHORT[char]}" if char in _SHORT else f"\\u{code:04x}"


def _spelled(char: str) -> str:
    return f"\\{char}" if char in '"\\' else char if char.isprintable() else _escape(ord(char))


def _escape(code: int) -> str:
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
