"""The input of a tool as the XML of Qwen3-Coder, in rules.

Decides what may stand in a value, so that whoever reads it finds its end and its type again: a string stands as it
is, without the tags that end a value; all else is JSON. Where a value may be a string or something else, a string
doesn't begin like the other, since it would be read as that. Must not know whole calls.
"""

from __future__ import annotations

import json
from dataclasses import replace

from node.engine.dialect.spec import MOST_NAME_CHARS
from node.engine.ebnf.rules import Rules, char_class, quote
from node.engine.ebnf.values import Values, other_name, sequence
from node.schema import chars
from node.schema.chars import Ranges
from node.schema.form import Anything, Array, Either, Field, Form, Literals, Matching, Number, Object, Plan, Ref, Text
from node.schema.pattern import Choice, Node, One, Repeat
from node.schema.pattern import Sequence as Parts

_TAGS = ("</parameter>", "</function>", "<parameter=")
_RAW = f"TagDispatch(loop_after_dispatch=false, excludes=({', '.join(map(quote, _TAGS))}))"
_TAG_START = chars.of("<")
_IN_NAME = chars.without(((0x21, 0x7E), (0xA1, 0xD7FF), (0xE000, 0xFFFD)), chars.union(chars.of("<>"), chars.SPACE))


class Unwritable(Exception):
    """A schema that can be enforced, but not in this form of calls. The message completes "can't enforce …"."""


class Parameters:
    """Writes the parameters of one tool.

    Args:
        rules: where to.
    """

    def __init__(self, plan: Plan, rules: Rules) -> None:
        self._plan, self._rules = plan, rules
        self._json = Values(plan, rules)

    def write(self) -> str:
        """All of them.

        Raises:
            Unwritable: a name or a value would not be found again.
        """
        match self._plan.resolve(self._plan.root):
            case Object() as form:
                return self._object(form)
            case Anything():
                return self._object(Object((), Anything()))
            case _:
                raise Unwritable("input that isn't one object")

    def _object(self, form: Object) -> str:
        extra = None
        if form.extra is not None:
            if form.extra_name != Text():
                raise Unwritable("names by a pattern")
            names = ["", *(field.name for field in form.fields)]
            name = self._rules.add(other_name(self._rules, names, _IN_NAME), f"[max_chars={MOST_NAME_CHARS}]")
            extra = self._rules.add(f'"<parameter=" {name} ">\\n" {self._value(form.extra)} "\\n</parameter>\\n"')
        return sequence(self._rules, form, [self._pair(field) for field in form.fields], extra, "")

    def _pair(self, field: Field) -> str:
        name = field.name
        if not name or name != name.strip() or len(name) > MOST_NAME_CHARS or any(char in name for char in "<>\n"):
            raise Unwritable("a property of this name")
        tag = quote(f"<parameter={name}>\n")
        return self._rules.add(f'{tag} {self._value(field.form)} "\\n</parameter>\\n"')

    def _value(self, form: Form, not_first: Ranges = ()) -> str:
        """What stands for a value.

        Args:
            not_first: what a string must not begin with.
        """
        match form:
            case Anything():
                return self._rules.add(_RAW)
            case Text():
                return self._text(form, not_first)
            case Matching(pattern):
                return self._rules.add(self._json.pattern(_without_tags(pattern), is_json=False))
            case Literals(texts):
                return self._rules.add(" | ".join(map(self._literal, texts)))
            case Ref():
                return self._value(self._plan.resolve(form), not_first)
            case Either(options):
                resolved = [self._plan.resolve(option) for option in options]
                kept_free = chars.union(not_first, *map(_starts, resolved))
                return self._rules.add(" | ".join(dict.fromkeys(self._value(one, kept_free) for one in resolved)))
            case Number() | Array() | Object():
                return self._json.write(form)

    def _literal(self, text: str) -> str:
        value = json.loads(text)
        if isinstance(value, str) and any(tag in value for tag in _TAGS):
            raise Unwritable("a value that holds the tags of calls")
        return quote(value if isinstance(value, str) else text)

    def _text(self, form: Text, not_first: Ranges) -> str:
        if form.chars != chars.ANY:
            tame = replace(form, chars=_tame(form.chars))
            return self._rules.run(char_class(tame.chars), tame.least, tame.most)
        raw = self._rules.add(_RAW)
        if form.least or not_first:
            inner = char_class(chars.without(chars.ANY, _TAG_START))
            first = char_class(chars.without(chars.ANY, chars.union(_TAG_START, not_first)))
            filled = f"{first} {f'{inner}{{{form.least - 1}}} ' if form.least > 1 else ''}{raw}"
            raw = self._rules.add(filled if form.least else f'"" | {filled}')
        return raw if form.most is None else self._rules.add(raw, f"[max_chars={form.most}]")


def _starts(form: Form) -> Ranges:
    """What a value begins with that is JSON and could be taken for a string."""
    match form:
        case Number():
            return chars.union(chars.of("-"), chars.DIGIT, chars.SPACE)
        case Array():
            return chars.union(chars.of("["), chars.SPACE)
        case Object():
            return chars.union(chars.of("{"), chars.SPACE)
        case _:
            return ()


def _tame(ranges: Ranges) -> Ranges:
    return chars.without(ranges, _TAG_START) if any(chars.has(ranges, tag) for tag in _TAGS) else ranges


def _without_tags(node: Node) -> Node:
    match node:
        case One(of):
            return One(_tame(of))
        case Repeat(part, least, most):
            return Repeat(_without_tags(part), least, most)
        case Parts(parts):
            return Parts(tuple(map(_without_tags, parts)))
        case Choice(options):
            return Choice(tuple(map(_without_tags, options)))
