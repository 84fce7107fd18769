"""Forms as JSON, in rules.

Decides how the JSON is laid out: properties in their order, at most one blank where JSON allows any. Must not know
tools.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import assert_never

from node.engine.ebnf.rules import BLANK, Rules, char_class, json_char, quote
from node.schema import chars
from node.schema.form import (
    Anything,
    Array,
    Either,
    Field,
    Form,
    Literals,
    Matching,
    Number,
    Object,
    Plan,
    Ref,
    Text,
)
from node.schema.numbers import NUMBER
from node.schema.pattern import Choice, Node, One, Repeat
from node.schema.pattern import Sequence as Parts

_FEW, _NARROW = 32, 128
"""Repeated so seldom and of so few characters, states cost less than a rule."""
_COMMA = f'"," {BLANK}'
_IN_KEY = chars.without(chars.ANY, chars.union(chars.CONTROL, chars.of('"\\')))


class Values:
    """Writes the forms of one plan.

    Args:
        rules: where to; those of all plans of a grammar, since many are alike.
    """

    def __init__(self, plan: Plan, rules: Rules) -> None:
        self._plan, self._rules = plan, rules
        self._refs: dict[str, str] = {}
        self._pending: list[str] = []  # names that are declared: they may be in each other deeper than a stack is

    def write(self, form: Form) -> str:
        """What stands for a form in a rule: a name or a quoted text."""
        written = self._write(form)
        while self._pending:
            name = self._pending.pop()
            self._rules.define(self._refs[name], self._write(self._plan.named[name]))
        return written

    def _write(self, form: Form) -> str:
        match form:
            case Anything(is_object):
                return self.anything(is_object=is_object)
            case Literals(texts):
                return self._rules.add(" | ".join(map(quote, texts)))
            case Text() | Matching():
                return self._rules.add(f'"\\"" {self.string(form)} "\\""')
            case Number(pattern):
                return self._rules.add(self.pattern(pattern, is_json=True))
            case Array():
                return self._array(form)
            case Object():
                return self._object(form)
            case Either(options):
                return self._rules.add(" | ".join(dict.fromkeys(map(self._write, options))))
            case Ref(name):
                return self._ref(name)
            case _:
                assert_never(form)

    def string(self, form: Text | Matching) -> str:
        """What stands between the quotes."""
        if isinstance(form, Matching):
            return self._rules.add(self.pattern(form.pattern, is_json=True))
        return self._rules.run(json_char(form.chars, self._rules), form.least, form.most)

    def pattern(self, node: Node, *, is_json: bool) -> str:
        """A pattern as part of a rule."""
        match node:
            case One(of):
                return f"({json_char(of, self._rules)})" if is_json else char_class(of)
            case Repeat(One(of), least, int(most)) if most <= _FEW and _is_narrow(of):
                return f"{char_class(of)}{{{least},{most}}}"
            case Repeat(One(of), least, most) if most is None or most > 1:
                escapes = self._rules if of == chars.ANY else None
                return self._rules.run(json_char(of, escapes) if is_json else char_class(of), least, most)
            case Repeat(part, least, most):
                bounds = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
                return f"({self.pattern(part, is_json=is_json)}){bounds}"
            case Parts(parts):
                return " ".join(self.pattern(part, is_json=is_json) for part in parts) or '""'
            case Choice(options):
                return "(" + " | ".join(self.pattern(option, is_json=is_json) for option in options) + ")"
            case _:
                assert_never(node)

    def anything(self, *, is_object: bool) -> str:
        """Any JSON value."""
        return _any_value(self._rules)[1 if is_object else 0]

    def _ref(self, name: str) -> str:
        if name not in self._refs:
            self._refs[name] = self._rules.declare()
            self._pending.append(name)
        return self._refs[name]

    def _array(self, form: Array) -> str:
        known = len(form.first)
        body = self._more_items(form)
        for index in range(known - 1, -1, -1):
            item = self._write(form.first[index])
            body = f"{item} {body}" if index == 0 else f"{_COMMA} {item} {body}"
            if index >= form.least:
                body = f'("" | {body})'
            body = self._rules.add(body)
        return self._rules.add(f'"[" {BLANK} {body} {BLANK} "]"')

    def _more_items(self, form: Array) -> str:
        """The items behind those that have a place."""
        known = len(form.first)
        if form.rest is None:
            return '""'
        item = self._write(form.rest)
        least, most = max(0, form.least - known), None if form.most is None else form.most - known
        if known:
            return self._several(f"{_COMMA} {item}", least, most)
        if most == 0:
            return '""'
        rest = self._several(f"{_COMMA} {item}", max(0, least - 1), None if most is None else most - 1)
        return self._rules.add(f"{item} {rest}" if least else f'"" | {item} {rest}')

    def _several(self, step: str, least: int, most: int | None) -> str:
        if most is None:
            return " ".join([*[step] * least, self._rules.loop(step)])
        return f"({step}){{{least},{most}}}"

    def _object(self, form: Object) -> str:
        pairs = [self._pair(field) for field in form.fields]
        extra = self._extra(form)
        body = sequence(self._rules, form, pairs, extra, _COMMA)
        return self._rules.add(f'"{{" {BLANK} {body} {BLANK} "}}"')

    def _pair(self, field: Field) -> str:
        name = json.dumps(field.name, ensure_ascii=False)
        return self._rules.add(f"{quote(name + ':')} {BLANK} {self._write(field.form)}")

    def _extra(self, form: Object) -> str | None:
        if form.extra is None:
            return None
        if form.extra_name == Text() and form.fields:
            names = [field.name for field in form.fields if chars.has(_IN_KEY, field.name)]
            key = f'"\\"" {other_name(self._rules, names, _IN_KEY)} "\\""'
        else:
            key = f'"\\"" {self.string(form.extra_name)} "\\""'
        return self._rules.add(f'{key} ":" {BLANK} {self._write(form.extra)}')


def _is_narrow(ranges: chars.Ranges) -> bool:
    return chars.both(ranges, _IN_KEY) == ranges and sum(high - low + 1 for low, high in ranges) <= _NARROW


def sequence(rules: Rules, form: Object, pairs: Sequence[str], extra: str | None, between: str) -> str:
    """The properties of an object in their order, then others.

    Args:
        pairs: how its fields are written. extra: how another one is. between: what separates two.
    """
    step = f"{between} {extra}".strip()
    last, rest, first = "", '""', '""'
    if extra is not None:
        if form.most_extra is None:
            rest = rules.loop(step)
        elif form.most_extra > 0:
            rest = f"({step}){{0,{form.most_extra}}}"
        if form.most_extra != 0:
            last = f"{extra} {rules.loop(step) if form.most_extra is None else _up_to(step, form.most_extra - 1)}"
            first = last if form.is_filled and not pairs else f'"" | {last}'
    first, rest = rules.add(first), rules.add(rest)
    has_required = False
    for field, pair in reversed(list(zip(form.fields, pairs, strict=True))):
        has_required = has_required or field.is_required
        after = f"{between} {pair} {rest}".strip()
        if field.is_required:
            first, rest = rules.add(f"{pair} {rest}"), rules.add(after)
        else:
            is_last_choice = form.is_filled and field == form.fields[-1] and extra is None
            first = rules.add(f"{pair} {rest}" if is_last_choice else f"{pair} {rest} | {first}")
            rest = rules.add(f"{rest} | {after}")
    return first


def _up_to(step: str, most: int) -> str:
    return f"({step}){{0,{most}}}" if most else '""'


def other_name(rules: Rules, names: Sequence[str], allowed: chars.Ranges) -> str:
    """Any name but some, as it stands."""
    rest = rules.loop(char_class(allowed))
    places: list[tuple[list[str], int]] = [(list(dict.fromkeys(names)), 0)]
    following: list[dict[str, int]] = []
    for known, at in places:  # grows as it goes
        longer: dict[str, list[str]] = {}
        for name in known:
            if len(name) > at:
                longer.setdefault(name[at], []).append(name)
        following.append({char: len(places) + index for index, char in enumerate(longer)})
        places += [(some, at + 1) for some in longer.values()]
    written = [""] * len(places)
    for index in range(len(places) - 1, -1, -1):
        known, at = places[index]
        others = chars.without(allowed, chars.of("".join(following[index])))
        options = [f"{char_class(others)} {rest}"]
        options += [f"{quote(char)} {written[place]}" for char, place in following[index].items()]
        if not any(len(name) == at for name in known):
            options.append('""')
        written[index] = rules.add(" | ".join(options))
    return written[0]


def _any_value(rules: Rules) -> tuple[str, str]:
    known = rules.shared.get("any")
    if known is None:
        value = rules.declare()
        characters = rules.run(json_char(chars.ANY, rules), 0, None)
        string = rules.add(f'"\\"" {characters} "\\""')
        number = rules.add(Values(Plan(Anything(), {}), rules).pattern(NUMBER, is_json=True))
        items = rules.loop(f"{_COMMA} {value}")
        pair = rules.add(f'{string} ":" {BLANK} {value}')
        pairs = rules.loop(f"{_COMMA} {pair}")
        array = rules.add(f'"[" {BLANK} ("" | {value} {items}) {BLANK} "]"')
        one = rules.add(f'"{{" {BLANK} ("" | {pair} {pairs}) {BLANK} "}}"')
        rules.define(value, f'{string} | {number} | {array} | {one} | "true" | "false" | "null"')
        known = rules.shared["any"] = (value, one)
    return known
