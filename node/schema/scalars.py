"""Strings and numbers of a schema, as forms."""

from __future__ import annotations

from node.schema import chars, numbers
from node.schema.ambiguity import is_ambiguous
from node.schema.form import Matching, Number, Text
from node.schema.formats import ANNOTATIONS, find_format, is_implied
from node.schema.keywords import Nothing, Schema, bound, limit
from node.schema.pattern import (
    Choice,
    InvalidPattern,
    Node,
    One,
    Repeat,
    Sequence,
    UnknownPattern,
    lengths,
    parse_pattern,
)
from node.schema.refusal import invalid, unenforceable

MOST_LEAST = 32
"""Characters that a string must have at least: each is a rule of the grammar."""
NO_BOUND = 10**9
"""No window holds so many characters or items."""


def plan_string(schema: Schema, path: str) -> Text | Matching:
    """What `pattern`, `format` and the lengths allow together."""
    least, most = bound(schema, "minLength", path) or 0, bound(schema, "maxLength", path)
    if most is not None and most < least:
        raise Nothing(f"{path}.maxLength")
    if most is not None and most >= NO_BOUND:
        most = None
    form: Text | Matching = Text(least=least, most=most)
    for node in _patterns(schema, path):
        form = _narrow(form, node, path)
    if isinstance(form, Text) and form.least > MOST_LEAST:
        key = "minLength" if least > MOST_LEAST else "pattern"
        raise unenforceable(f"{path}.{key}", f"more than {MOST_LEAST} characters at least")
    if isinstance(form, Matching):
        _check_repeats(form.pattern, path)
        if is_ambiguous(form.pattern):
            raise unenforceable(f"{path}.pattern", "a repetition of repetitions with no clear ends")
    return form


def _patterns(schema: Schema, path: str) -> list[Node]:
    given, name = schema.get("pattern"), schema.get("format")
    nodes: list[Node] = []
    is_covered = True
    for text in given if isinstance(given, list) else [] if given is None else [given]:
        if not isinstance(text, str):
            raise invalid(f"{path}.pattern", "must be a string")
        try:
            nodes.append(parse_pattern(text))
        except UnknownPattern as unknown:
            if not is_implied(text, name):
                raise unenforceable(f"{path}.pattern", str(unknown)) from None
            is_covered = False
        except InvalidPattern:
            raise invalid(f"{path}.pattern", "not a regular expression") from None
    if name is not None and not isinstance(name, str):
        raise invalid(f"{path}.format", "must be a string")
    if name is None or name in ANNOTATIONS or (nodes and is_covered):
        return nodes
    found = find_format(name)
    if found is None:
        raise unenforceable(f"{path}.format", "this format")
    return [*nodes, found]


def _narrow(form: Text | Matching, node: Node, path: str) -> Text | Matching:
    """What both a form and a pattern allow."""
    text = _as_text(node)
    match form:
        case Text() if text is not None:
            return _both(form, text, path)
        case Text():
            return _with_lengths(node, form, path)
        case Matching(known) if text is not None:
            return _with_lengths(known, text, path)
        case _:
            raise unenforceable(f"{path}.pattern", "two patterns at once")


def _both(one: Text, other: Text, path: str) -> Text:
    most = other.most if one.most is None else one.most if other.most is None else min(one.most, other.most)
    shared = Text(chars.both(one.chars, other.chars), max(one.least, other.least), most)
    if (most is not None and most < shared.least) or (not shared.chars and shared.least):
        raise Nothing(f"{path}.pattern")
    return shared if shared.chars else Text(one.chars, 0, 0)


def _with_lengths(node: Node, text: Text, path: str) -> Matching:
    if text.chars != chars.ANY:
        raise unenforceable(f"{path}.pattern", "two patterns at once")
    low, high = lengths(node)
    if low >= text.least and (text.most is None or (high is not None and high <= text.most)):
        return Matching(node)
    fitted = _fit(node, text.least, text.most)
    if fitted is None:
        key = "maxLength" if text.most is not None else "minLength"
        raise unenforceable(f"{path}.{key}", "a length next to this pattern or format")
    return Matching(fitted)


def _as_text(node: Node) -> Text | None:
    """A pattern that only says how many characters of which set there are."""
    match node:
        case Repeat(One(of), least, most):
            return Text(of, least, most)
        case Sequence(parts) if parts and all(part == Repeat(One(chars.ANY), 0, None) for part in parts):
            return Text()
        case Sequence((part,)):
            return _as_text(part)
        case _:
            return None


def _fit(node: Node, least: int, most: int | None) -> Node | None:
    """A sequence with one part of no fixed length, which is then what the lengths leave to it."""
    parts = node.parts if isinstance(node, Sequence) else (node,)
    loose = [index for index, part in enumerate(parts) if lengths(part)[0] != lengths(part)[1]]
    if len(loose) != 1:
        return None
    part = parts[loose[0]]
    if not isinstance(part, Repeat) or not isinstance(part.part, One):
        return None
    fixed = sum(lengths(other)[0] for index, other in enumerate(parts) if index != loose[0])
    low = max(part.least, least - fixed)
    high = part.most if most is None else most - fixed if part.most is None else min(part.most, most - fixed)
    if high is not None and high < low:
        return None
    return Sequence((*parts[: loose[0]], Repeat(part.part, low, high), *parts[loose[0] + 1 :]))


def _check_repeats(node: Node, path: str) -> None:
    match node:
        case One():
            return
        case Repeat(part, least, _):
            if isinstance(part, One) and least > MOST_LEAST:
                raise unenforceable(f"{path}.pattern", f"more than {MOST_LEAST} characters at least")
            _check_repeats(part, path)
        case Sequence(parts):
            for part in parts:
                _check_repeats(part, path)
        case Choice(options):
            for option in options:
                _check_repeats(option, path)


def plan_number(schema: Schema, path: str, *, is_integer: bool) -> Number:
    """What the bounds allow."""
    step = limit(schema, "multipleOf", path)
    if step is not None and not (step == 1 and is_integer):
        raise unenforceable(f"{path}.multipleOf", "`multipleOf`")
    low, high = limit(schema, "minimum", path), limit(schema, "maximum", path)
    above, below = limit(schema, "exclusiveMinimum", path), limit(schema, "exclusiveMaximum", path)
    open_low = above is not None and (low is None or above >= low)
    open_high = below is not None and (high is None or below <= high)
    low, high = above if open_low else low, below if open_high else high
    for key, value, is_far in (
        ("minimum", low, low is not None and low > numbers.FAR),
        ("maximum", high, high is not None and high < -numbers.FAR),
    ):
        if is_far:
            raise unenforceable(f"{path}.{key}", f"numbers of more than {numbers.MOST_DIGITS} digits")
        if value is not None and -int(value.as_tuple().exponent) > numbers.MOST_DIGITS - 2:
            raise unenforceable(f"{path}.{key}", "so many decimal places")
    if is_integer:
        if low is not None and open_low:
            low = low.to_integral_value("ROUND_FLOOR") + 1
        if high is not None and open_high:
            high = high.to_integral_value("ROUND_CEILING") - 1
        node = numbers.integers(low, high)
    else:
        node = numbers.numbers(low, high, open_low=open_low, open_high=open_high)
    if node is None:
        raise Nothing(f"{path}.{'maximum' if 'maximum' in schema else 'exclusiveMaximum'}")
    return Number(node)
