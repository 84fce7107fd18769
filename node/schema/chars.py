"""Sets of characters, as sorted ranges of code points. Halves of surrogate pairs are in none."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]

_LAST = 0x10FFFF
_LOW_SURROGATE, _HIGH_SURROGATE = 0xD800, 0xDFFF


def union(*sets: Iterable[tuple[int, int]]) -> Ranges:
    """Every character of some sets."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for one in sets for pair in one):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def without(left: Ranges, right: Ranges) -> Ranges:
    """The characters of one set that aren't in another."""
    kept: list[tuple[int, int]] = []
    at = 0  # both are sorted: what lies behind one range lies behind the next
    for low, high in left:
        start = low
        while at < len(right) and right[at][1] < start:
            at += 1
        while at < len(right) and right[at][0] <= high:
            if right[at][0] > start:
                kept.append((start, right[at][0] - 1))
            start = right[at][1] + 1
            if start > high:
                break
            at += 1
        if start <= high:
            kept.append((start, high))
    return tuple(kept)


def both(left: Ranges, right: Ranges) -> Ranges:
    """The characters that two sets share."""
    return without(left, without(left, right))


def of(text: str) -> Ranges:
    """The characters of a text."""
    return union((ord(char), ord(char)) for char in text)


def has(chars: Ranges, text: str) -> bool:
    """Whether every character of a text is in a set."""
    return all(any(low <= ord(char) <= high for low, high in chars) for char in text)


ANY: Ranges = ((0, _LOW_SURROGATE - 1), (_HIGH_SURROGATE + 1, _LAST))
DIGIT: Ranges = of("0123456789")
WORD: Ranges = union(DIGIT, ((ord("a"), ord("z")), (ord("A"), ord("Z")), (ord("_"), ord("_"))))
SPACE: Ranges = union(of("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"), ((0x2000, 0x200A),))
DOT: Ranges = without(ANY, of("\n\r\u2028\u2029"))
CONTROL: Ranges = ((0, 0x1F),)
