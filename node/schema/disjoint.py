"""Whether forms exclude each other.

Decides when `oneOf` may be taken for `anyOf`: when no value that we allow under one alternative matches another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

from node.schema.form import Anything, Array, Either, Form, Literals, Matching, Number, Object, Ref, Text
from node.schema.keywords import identity

_ALL = frozenset({"string", "number", "boolean", "null", "array", "object"})
_KIND_BY_START = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}


def tell_apart(forms: Sequence[Form], named: Mapping[str, Form]) -> list[Form] | None:
    """Alternatives of which never two match, or None. Properties that tell objects apart become required."""
    resolved = [_resolve(form, named) for form in forms]
    kinds: dict[int, frozenset[str]] = {}  # when needed: of more than a few, two share one, and that ends it
    for one, other in combinations(range(len(forms)), 2):
        left, right = resolved[one], resolved[other]
        if left is None or right is None:
            return None
        for index, form in ((one, left), (other, right)):
            if index not in kinds:
                kinds[index] = _kinds(form, named)
        if kinds[one].isdisjoint(kinds[other]) or _differ(left, right):
            continue
        if not isinstance(left, Object) or not isinstance(right, Object):
            return None
        name = _discriminator(left, right)
        if name is not None:
            resolved[one], resolved[other] = _require(left, name), _require(right, name)
        elif not (_excludes(left, right) and _excludes(right, left)):
            return None
    return [
        form if known is None or known == _resolve(form, named) else known
        for form, known in zip(forms, resolved, strict=True)
    ]


def _resolve(form: Form, named: Mapping[str, Form]) -> Form | None:
    """None where the name isn't planned yet."""
    found: Form | None = form
    while isinstance(found, Ref):
        found = named.get(found.name)
    return found


def _kinds(form: Form, named: Mapping[str, Form]) -> frozenset[str]:
    """Of which types its values may be. Each name is followed once, since names may share what they hold."""
    found: set[str] = set()
    seen: set[str] = set()
    open_forms = [form]
    while open_forms and found != _ALL:
        match open_forms.pop():
            case Either(options):
                open_forms += options
            case Ref(name):
                if name not in named:
                    return _ALL
                if name not in seen:
                    seen.add(name)
                    open_forms.append(named[name])
            case other:
                found |= _kinds_alone(other)
    return frozenset(found)


def _kinds_alone(form: Form) -> frozenset[str]:
    match form:
        case Literals(texts):
            return frozenset(_KIND_BY_START.get(text[0], "number") for text in texts)
        case Text() | Matching():
            return frozenset({"string"})
        case Number():
            return frozenset({"number"})
        case Array():
            return frozenset({"array"})
        case Object() | Anything(True):
            return frozenset({"object"})
        case _:
            return _ALL


def _differ(left: Form, right: Form) -> bool:
    if not isinstance(left, Literals) or not isinstance(right, Literals):
        return False
    return set(map(_value_of, left.texts)).isdisjoint(map(_value_of, right.texts))


@lru_cache(1 << 14)
def _value_of(text: str) -> str:
    return identity(json.loads(text))


def _discriminator(left: Object, right: Object) -> str | None:
    others = {field.name: field.form for field in right.fields}
    for field in left.fields:
        if field.name in others and _differ(field.form, others[field.name]):
            return field.name
    return None


def _require(form: Object, name: str) -> Object:
    return replace(
        form, fields=tuple(replace(field, is_required=True) if field.name == name else field for field in form.fields)
    )


def _excludes(left: Object, right: Object) -> bool:
    """Whether nothing that we write for the one matches the schema of the other."""
    here, there = {field.name for field in left.fields}, {field.name for field in right.fields}
    must_have = any(field.is_required and field.name not in there for field in left.fields)
    lacks = left.extra is None and any(field.is_required and field.name not in here for field in right.fields)
    return (right.is_closed and must_have) or lacks
