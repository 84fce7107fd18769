"""Whether a pattern can be read in so many ways that following it is slow.

Decides it by one sign, which is known from engines that backtrack: a repetition whose end can also be more of what it
ends with. A grammar follows all readings at once, and has a mask of all tokens to make of them.
"""

from __future__ import annotations

from node.schema import chars
from node.schema.chars import Ranges
from node.schema.pattern import Choice, Node, One, Repeat, Sequence, lengths


def is_ambiguous(node: Node) -> bool:
    """Whether a repetition in it has no clear ends."""
    match node:
        case One() | Repeat(One()):
            return False
        case Repeat(part, _, most):
            repeats = most is None or most > 1
            unclear = repeats and (lengths(part)[0] == 0 or bool(chars.both(_tails(part), firsts(part))))
            return unclear or is_ambiguous(part)
        case Sequence(parts):
            return any(map(is_ambiguous, parts))
        case Choice(options):
            return any(map(is_ambiguous, options))


def firsts(node: Node) -> Ranges:
    """The characters that it may begin with."""
    match node:
        case One(of):
            return of
        case Repeat(part):
            return firsts(part)
        case Choice(options):
            return chars.union(*map(firsts, options))
        case Sequence(parts):
            found: Ranges = ()
            for part in parts:
                found = chars.union(found, firsts(part))
                if lengths(part)[0]:
                    break
            return found


def _tails(node: Node) -> Ranges:
    """The characters with which it may go on where it may also have ended."""
    match node:
        case One():
            return ()
        case Repeat(part, least, most):
            more = firsts(part) if least != most else ()
            return chars.union(more, _tails(part))
        case Choice(options):
            return chars.union(*map(_tails, options))
        case Sequence(parts):
            found: Ranges = ()
            for part in reversed(parts):
                found = chars.union(found, _tails(part))
                if lengths(part)[0]:
                    break
            return found
