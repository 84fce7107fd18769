"""The input of a tool as the XML of Qwen3-Coder, in rules.

Decides what may stand in a value, so that whoever reads it finds its end and its type again: a string stands as it
is, without the tags that end a value; all else is JSON. Where a value may be a string or something else, a string
doesn't begin like the other, since it would be read as that. Must not know whole calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from node.engine.dialect.declared import MOST_MEMBERS
from node.engine.dialect.spec import MOST_NAME_CHARS
from node.engine.ebnf.rules import Rules, char_class, quote
from node.engine.ebnf.values import Values, other_name, sequence
from node.schema import chars
from node.schema.ambiguity import firsts
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
        self._refs: dict[str, str] = {}

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

    def _value(self, form: Form) -> str:
        """What stands for a value."""
        if isinstance(form, Ref) and form.name in self._refs:
            return self._refs[form.name]
        leaves = _leaves(form, self._plan)
        not_first = _starts(leaves)
        count = sum(len(leaf.texts) for leaf in leaves if isinstance(leaf, Literals))
        if count > MOST_MEMBERS or any(isinstance(leaf, Text | Matching) for leaf in leaves):
            self._check_literals(leaves, not_first)
        written = list(dict.fromkeys(self._leaf(leaf, not_first) for leaf in leaves))
        value = written[0] if len(written) == 1 else self._rules.add(" | ".join(written))
        if isinstance(form, Ref):
            self._refs[form.name] = value
        return value

    def _leaf(self, form: Form, not_first: Ranges) -> str:
        """What stands for a value of one kind.

        Args:
            not_first: what a string must not begin with.
        """
        match form:
            case Anything():
                return self._rules.add(_RAW)
            case Text():
                return self._text(form, not_first)
            case Matching(pattern):
                if chars.both(firsts(pattern), not_first):
                    raise Unwritable("a pattern of what may also be no string")
                return self._rules.add(self._json.pattern(_without_tags(pattern), is_json=False))
            case Literals(texts):
                return self._rules.add(" | ".join(map(self._literal, texts)))
            case _:
                return self._json.write(form)

    def _check_literals(self, leaves: Sequence[Form], not_first: Ranges) -> None:
        """Next to strings at large, and in a long list, a string of a list is read as any is."""
        for text in (text for leaf in leaves if isinstance(leaf, Literals) for text in leaf.texts):
            if text.startswith('"') and chars.both(chars.of(json.loads(text)[:1]), not_first):
                raise Unwritable("a value that could be taken for another")

    def _literal(self, text: str) -> str:
        value = json.loads(text)
        if isinstance(value, str) and any(tag in value for tag in _TAGS):
            raise Unwritable("a value that holds the tags of calls")
        return quote(value if isinstance(value, str) else text)

    def _text(self, form: Text, not_first: Ranges) -> str:
        if form.chars != chars.ANY:
            if chars.both(form.chars, not_first):
                raise Unwritable("a pattern of what may also be no string")
            tame = replace(form, chars=_tame(form.chars))
            return self._rules.run(char_class(tame.chars), tame.least, tame.most)
        raw = self._rules.add(_RAW)
        if form.least or not_first:
            inner = char_class(chars.without(chars.ANY, _TAG_START))
            first = char_class(chars.without(chars.ANY, chars.union(_TAG_START, not_first)))
            filled = f"{first} {f'{inner}{{{form.least - 1}}} ' if form.least > 1 else ''}{raw}"
            raw = self._rules.add(filled if form.least else f'"" | {filled}')
        return raw if form.most is None else self._rules.add(raw, f"[max_chars={form.most}]")


def _leaves(form: Form, plan: Plan) -> list[Form]:
    """What a value may be, without names and alternatives. Each name is followed once."""
    found: list[Form] = []
    seen: set[str] = set()
    open_forms = [form]
    while open_forms:
        match open_forms.pop():
            case Ref(name):
                if name not in seen:
                    seen.add(name)
                    open_forms.append(plan.named[name])
            case Either(options):
                open_forms += reversed(options)
            case leaf:
                found.append(leaf)
    return found


def _starts(leaves: Sequence[Form]) -> Ranges:
    """What values begin with that are JSON, and that a string would be taken for."""
    literals = {text for leaf in leaves if isinstance(leaf, Literals) for text in leaf.texts}
    starts = {text[0] for text in literals} - {'"', "n"}
    if {"true", "false"} <= literals:
        starts -= {"t", "f"}  # whichever is read, it may be
    elif starts & {"t", "f"}:
        starts |= {"t", "f"}
    for kind, start in ((Number, "0"), (Array, "["), (Object, "{")):
        if any(isinstance(leaf, kind) for leaf in leaves):
            starts.add(start)
    if starts & set("-0123456789"):
        starts |= set("-0123456789")
    return chars.union(chars.of("".join(starts)), chars.SPACE) if starts else ()


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
