"""A regular expression of ECMA-262 as a tree, anchored at both ends.

Decides which of the language we can enforce; the rest is refused by name. An expression that isn't anchored gets what
may stand around it, since JSON Schema searches. Must not know JSON or grammars.
"""

from __future__ import annotations

from dataclasses import dataclass

from node.schema import chars
from node.schema.chars import Ranges

MOST_REPEATS = 256
"""Of anything but single characters: each repetition is a copy in the grammar."""
MOST_NODES = 1024
"""Of a tree, copies counted."""
_MOST_DEPTH = 32
_CLASSES = {"d": chars.DIGIT, "w": chars.WORD, "s": chars.SPACE}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


@dataclass(frozen=True, slots=True)
class One:
    """One character of a set."""

    of: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    parts: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """So many times; None means without bound."""

    part: Node
    least: int
    most: int | None


Node = One | Sequence | Choice | Repeat


class UnknownPattern(ValueError):
    """Not a pattern that can be enforced. The message completes "this node can't enforce …"."""


class InvalidPattern(ValueError):
    """Not a regular expression at all."""


def lengths(node: Node) -> tuple[int, int | None]:
    """How short and how long a match may be, in characters."""
    match node:
        case One():
            return 1, 1
        case Repeat(part, least, most):
            low, high = lengths(part)
            return low * least, 0 if high == 0 else None if most is None or high is None else high * most
        case Sequence(parts):
            known = [lengths(part) for part in parts]
            is_bounded = all(high is not None for _, high in known)
            return sum(low for low, _ in known), sum(high or 0 for _, high in known) if is_bounded else None
        case Choice(options):
            known = [lengths(option) for option in options]
            highs = [high for _, high in known]
            return min(low for low, _ in known), None if None in highs else max(high or 0 for high in highs)


def weigh(node: Node) -> int:
    """How many nodes a tree has, copies counted. A repeated character is one, however often it is repeated."""
    match node:
        case One():
            return 1
        case Repeat(One(), least, _):
            return 1 + least
        case Repeat(part, least, most):
            return 1 + weigh(part) * max(1, least if most is None else most)
        case Sequence(parts):
            return 1 + sum(map(weigh, parts))
        case Choice(options):
            return 1 + sum(map(weigh, options))


def literal(text: str) -> Sequence:
    """A text as it stands."""
    return Sequence(tuple(One(chars.of(char)) for char in text))


def parse_pattern(text: str) -> Node:
    """Read an expression.

    Raises:
        UnknownPattern: it can't be enforced.
        InvalidPattern: it is none.
    """
    parser = _Parser(text)
    try:
        node = parser.parse()
    except IndexError:
        raise InvalidPattern from None
    if weigh(node) > MOST_NODES:
        raise UnknownPattern("a pattern with so many parts")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0

    def parse(self) -> Node:
        options = [self._anchored()]
        while self._take("|"):
            options.append(self._anchored())
        if self._at < len(self._text):
            raise InvalidPattern
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _anchored(self) -> Node:
        """One alternative of the whole, and what may stand around it."""
        around = Repeat(One(chars.ANY), 0, None)
        parts: list[Node] = [] if self._take("^") else [around]
        parts += self._parts()
        if not self._take("$"):
            parts.append(around)
        elif self._peek() not in ("", "|"):
            raise UnknownPattern("an anchor inside a pattern")
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _parts(self) -> list[Node]:
        parts: list[Node] = []
        while (char := self._peek()) and char not in "|)$":
            parts.append(self._quantified(self._atom()))
        return parts

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise UnknownPattern("a pattern nested so deep")
        options: list[Node] = []
        while True:
            parts = self._parts()
            if self._peek() == "$":
                raise UnknownPattern("an anchor inside a pattern")
            options.append(parts[0] if len(parts) == 1 else Sequence(tuple(parts)))
            if not self._take("|"):
                break
        if not self._take(")"):
            raise InvalidPattern
        self._depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _atom(self) -> Node:
        char = self._next()
        match char:
            case "(":
                self._open_group()
                return self._group()
            case "[":
                return One(self._class())
            case ".":
                return One(chars.DOT)
            case "\\":
                return One(self._escape())
            case "^":
                raise UnknownPattern("an anchor inside a pattern")
            case "*" | "+" | "?":
                raise InvalidPattern
            case _:
                return One(chars.of(char))

    def _open_group(self) -> None:
        if not self._take("?") or self._take(":"):
            return
        if self._peek() in ("=", "!") or self._text.startswith(("<=", "<!"), self._at):
            raise UnknownPattern("lookaround in a pattern")
        if not self._take("<"):
            raise UnknownPattern("flags in a pattern")
        while self._next() != ">":
            pass

    def _quantified(self, part: Node) -> Node:
        bounds: tuple[int, int | None] | None
        if self._take("*"):
            bounds = (0, None)
        elif self._take("+"):
            bounds = (1, None)
        elif self._take("?"):
            bounds = (0, 1)
        else:
            bounds = self._braces()
        if bounds is None:
            return part
        self._take("?")  # lazy or not, the same texts match
        if self._peek() in ("*", "+", "?"):
            raise InvalidPattern
        least, most = bounds
        if most is not None and most < least:
            raise InvalidPattern
        if not isinstance(part, One) and max(least, most or 0) > MOST_REPEATS:
            raise UnknownPattern(f"more than {MOST_REPEATS} repetitions in a pattern")
        return Repeat(part, least, most)

    def _braces(self) -> tuple[int, int | None] | None:
        """`{n}`, `{n,}`, `{n,m}`; any other brace stands for itself."""
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        self._at = end + 1
        return int(low), (int(high) if high else None) if comma else int(low)

    def _class(self) -> Ranges:
        inverted = self._take("^")
        found: list[Ranges] = []
        while not self._take("]"):
            low = self._class_atom()
            if self._peek() == "-" and self._text[self._at + 1] != "]":
                self._at += 1
                high = self._class_atom()
                first, last = _single(low), _single(high)
                if first is None or last is None:
                    found += [low, chars.of("-"), high]
                    continue
                if first > last:
                    raise InvalidPattern
                low = ((first, last),)
            found.append(low)
        inside = chars.both(chars.union(*found), chars.ANY)
        result = chars.without(chars.ANY, inside) if inverted else inside
        if not result:
            raise UnknownPattern("a pattern with an empty set of characters")
        return result

    def _class_atom(self) -> Ranges:
        char = self._next()
        if char != "\\":
            return chars.of(char)
        if self._take("b"):
            return chars.of("\b")
        return chars.of("-") if self._take("-") else self._escape()

    def _escape(self) -> Ranges:
        char = self._next()
        if char.lower() in _CLASSES:
            found = _CLASSES[char.lower()]
            return found if char.islower() else chars.without(chars.ANY, found)
        if char in _CONTROLS and not (char == "0" and self._peek().isdigit()):
            return chars.of(_CONTROLS[char])
        if char in "xu":
            width = 2 if char == "x" else 4
            digits = self._text[self._at : self._at + width]
            if len(digits) < width or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise InvalidPattern
            self._at += width
            found = chars.both(((int(digits, 16), int(digits, 16)),), chars.ANY)
            if not found:
                raise UnknownPattern("half a surrogate pair in a pattern")
            return found
        if char.isalnum():
            words = {"b": "word boundaries", "B": "word boundaries", "p": "Unicode classes", "P": "Unicode classes"}
            raise UnknownPattern(f"{words.get(char, 'back references and unknown escapes')} in a pattern")
        return chars.of(char)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._text[self._at]
        self._at += 1
        return char

    def _take(self, char: str) -> bool:
        if self._peek() != char:
            return False
        self._at += 1
        return True


def _single(found: Ranges) -> int | None:
    return found[0][0] if len(found) == 1 and found[0][0] == found[0][1] else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
