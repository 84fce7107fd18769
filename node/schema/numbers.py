"""Bounds of a number as a pattern of its digits.

Decides that numbers are written without an exponent where they are bounded, and never so long that a double can't
hold them. Must not know JSON Schema.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

from node.schema import chars
from node.schema.pattern import Choice, Node, One, Repeat, Sequence, literal, parse_pattern

MOST_DIGITS = 18
MOST_PLACES = 16
FAR = Decimal(10) ** MOST_DIGITS
INTEGER = parse_pattern(rf"^-?(?:0|[1-9][0-9]{{0,{MOST_DIGITS - 1}}})$")
NUMBER = parse_pattern(rf"^-?(?:0|[1-9][0-9]{{0,{MOST_DIGITS - 1}}})(?:\.[0-9]{{1,17}})?(?:[eE][+-]?[0-9]{{1,2}})?$")
_DIGIT = One(chars.DIGIT)


@lru_cache(1024)
def integers(low: Decimal | None, high: Decimal | None) -> Node | None:
    """Whole numbers from `low` to `high`, both included; None if there are none."""
    if low is None and high is None:
        return INTEGER
    first = -FAR if low is None else max(low, -FAR)
    last = FAR if high is None else min(high, FAR)
    return _between(int(first.to_integral_value(ROUND_CEILING)), int(last.to_integral_value(ROUND_FLOOR)))


@lru_cache(1024)
def numbers(low: Decimal | None, high: Decimal | None, *, open_low: bool, open_high: bool) -> Node | None:
    """Numbers between two bounds, each included unless it is open; None if there are none."""
    if low is None and high is None:
        return NUMBER
    first = -FAR if low is None else max(low, -FAR)
    last = FAR if high is None else min(high, FAR)
    if first > last or (first == last and (open_low or open_high)):
        return None
    options: list[Node | None] = []
    if last >= 0:
        start, start_open = (first, open_low and first == low) if first >= 0 else (Decimal(0), False)
        options.append(_positive(start, last, start_open, open_high and last == high))
    if first < 0:
        end, end_open = (-last, open_high and last == high) if last < 0 else (Decimal(0), True)
        mirrored = _positive(end, -first, end_open, open_low and first == low)
        options.append(None if mirrored is None else Sequence((literal("-"), mirrored)))
    return _choice(options)


def _positive(low: Decimal, high: Decimal, open_low: bool, open_high: bool) -> Node | None:
    """Numbers from `low` to `high`, neither of them negative."""
    whole_low, whole_high = int(low), int(high)
    part_low, part_high = _fraction(low), _fraction(high)
    if whole_low == whole_high:
        return _after(whole_low, _fractions(part_low, part_high, open_low, open_high))
    return _choice(
        [
            _after(whole_low, _fractions(part_low, None, open_low, False)),
            _with_any_fraction(_between(whole_low + 1, whole_high - 1)),
            _after(whole_high, _fractions("", part_high, False, open_high)),
        ]
    )


def _fraction(number: Decimal) -> str:
    return format(number.normalize(), "f").partition(".")[2]


def _after(whole: int, fractions: Node | None) -> Node | None:
    return None if fractions is None else Sequence((literal(str(whole)), fractions))


def _with_any_fraction(whole: Node | None) -> Node | None:
    return None if whole is None else Sequence((whole, parse_pattern(r"^(?:\.[0-9]{1,17})?$")))


def _fractions(low: str, high: str | None, open_low: bool, open_high: bool) -> Node | None:
    """Decimal places, the point included, that count at least `low` and at most `high` (None: less than 1)."""
    options: list[Node | None] = []
    width = max(len(low), len(high or ""), 1)
    for digits in range(1, width + 1):
        first = _scaled(low, digits, open_low, up=True)
        last = 10**digits - 1 if high is None else _scaled(high, digits, open_high, up=False)
        options.append(_digits_between(first, last, digits))
    longer = _digits_between(
        _scaled(low, width, open_low, up=True),
        10**width - 1 if high is None else int(_padded(high, width)) - 1,
        width,
    )
    if longer is not None and width < MOST_PLACES:
        options.append(Sequence((longer, Repeat(_DIGIT, 1, MOST_PLACES - width))))
    found = _choice(options)
    options = [None if found is None else Sequence((literal("."), found))]
    if not int(low or "0") and not open_low and (high is None or int(high or "0") or not open_high):
        options.append(Sequence())
    return _choice(options)


def _padded(fraction: str, digits: int) -> str:
    return fraction.ljust(digits, "0")


def _scaled(fraction: str, digits: int, is_open: bool, *, up: bool) -> int:
    """A bound in units of the last of so many places, rounded to the inside."""
    exact = Decimal(f"0.{fraction or 0}").scaleb(digits)
    whole = int(exact.to_integral_value(ROUND_CEILING if up else ROUND_FLOOR))
    return whole + (1 if up else -1) if is_open and whole == exact else whole


def _between(low: int, high: int) -> Node | None:
    """Whole numbers, without leading zeros."""
    options: list[Node | None] = []
    if low < 0:
        mirrored = _between(max(1, -high), -low)
        options.append(None if mirrored is None else Sequence((literal("-"), mirrored)))
    low = max(low, 0)
    for digits in range(len(str(low)), len(str(max(high, 0))) + 1):
        least = 0 if digits == 1 else 10 ** (digits - 1)
        options.append(_digits_between(max(low, least), min(high, 10**digits - 1), digits))
    return _choice(options)


def _digits_between(low: int, high: int, digits: int) -> Node | None:
    """Numbers of exactly so many digits, leading zeros included."""
    if low > high:
        return None
    first, last = str(low).zfill(digits), str(high).zfill(digits)
    if first == "0" * digits and last == "9" * digits:
        return Repeat(_DIGIT, digits, digits)
    if first[0] == last[0]:
        rest = _digits_between(int(first[1:]), int(last[1:]), digits - 1) if digits > 1 else Sequence()
        return None if rest is None else Sequence((literal(first[0]), rest))
    options: list[Node | None] = []
    start, end = int(first[0]), int(last[0])
    if first[1:] != "0" * (digits - 1):
        rest = _digits_between(int(first[1:]), 10 ** (digits - 1) - 1, digits - 1)
        options.append(None if rest is None else Sequence((literal(first[0]), rest)))
        start += 1
    upper: Node | None = None
    if last[1:] != "9" * (digits - 1):
        rest = _digits_between(0, int(last[1:]), digits - 1)
        upper = None if rest is None else Sequence((literal(last[0]), rest))
        end -= 1
    if start <= end:
        middle = One(((ord("0") + start, ord("0") + end),))
        options.append(Sequence((middle, Repeat(_DIGIT, digits - 1, digits - 1))))
    options.append(upper)
    return _choice(options)


def _choice(options: list[Node | None]) -> Node | None:
    known = tuple(option for option in options if option is not None)
    return None if not known else known[0] if len(known) == 1 else Choice(known)
