"""Arrays and objects of a schema, as forms.

Decides which combinations of their keywords say something that a grammar can say, since it can't count what it has
seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from node.schema.form import Anything, Array, Field, Form, Literals, Matching, Object, Ref, Text
from node.schema.keywords import Nothing, Schema, bound
from node.schema.refusal import invalid, unenforceable
from node.schema.scalars import NO_BOUND, plan_string

MOST_LEAST_ITEMS = 256
MOST_OPTIONAL = 200
"""Properties of one object that may be missing; the time to compile grows with their square."""


class Inner(Protocol):
    """What plans the schemas inside."""

    named: dict[str, Form]

    def plan(self, schema: Any, path: str) -> Form:
        """The form of one schema."""

    def inside(self) -> AbstractContextManager[None]:
        """In an array or an object."""


def plan_array(inner: Inner, schema: Schema, path: str) -> Array:
    """What the items and their number may be."""
    for key, harmless in (("contains", ()), ("uniqueItems", (False,)), ("unevaluatedItems", (True, False))):
        if key in schema and schema[key] not in harmless:
            raise unenforceable(f"{path}.{key}", f"`{key}`")
    least, most = bound(schema, "minItems", path) or 0, bound(schema, "maxItems", path)
    if least > MOST_LEAST_ITEMS:
        raise unenforceable(f"{path}.minItems", f"more than {MOST_LEAST_ITEMS} items at least")
    if most is not None and most >= NO_BOUND:
        most = None
    with inner.inside():
        first, rest = _items(inner, schema, most, path)
    if rest is None:
        most = len(first) if most is None else min(most, len(first))
    if most is not None and most < least:
        raise Nothing(f"{path}.maxItems" if "maxItems" in schema else f"{path}.minItems")
    return Array(tuple(first if most is None else first[:most]), rest, least, most)


def _items(inner: Inner, schema: Schema, most: int | None, path: str) -> tuple[list[Form], Form | None]:
    """What stands in the first places, and behind them."""
    word, key = "prefixItems", "items"
    if isinstance(schema.get("items"), list):
        word, key = "items", "additionalItems"  # draft 7
    items, others = schema.get(word, []), schema.get(key, schema.get("unevaluatedItems", True))
    if not isinstance(items, list):
        raise invalid(f"{path}.{word}", "must be a list of schemas")
    first: list[Form] = []
    try:
        for index, item in enumerate(items):
            first.append(inner.plan(item, f"{path}.{word}.{index}"))
        rest = None if most is not None and most <= len(first) else inner.plan(others, f"{path}.{key}")
    except Nothing:
        rest = None
    return first, rest


def plan_object(inner: Inner, schema: Schema, path: str) -> Object | Anything:
    """What the properties may be."""
    for key in ("dependentRequired", "dependentSchemas", "dependencies"):
        if schema.get(key):
            raise unenforceable(f"{path}.{key}", f"`{key}`")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping):
        raise invalid(f"{path}.properties", "must be an object of schemas")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise invalid(f"{path}.required", "must be a list of names")
    with inner.inside():
        extra, extra_name, names = _extra(inner, schema, path)
        fields = _fields(inner, properties, names, required, extra, path)
    if names is not None:
        extra = None
    is_bare = not any(key in schema for key in ("properties", "additionalProperties", "patternProperties"))
    if is_bare and "propertyNames" not in schema and "unevaluatedProperties" not in schema:
        extra = Anything()
    elif "additionalProperties" not in schema and "patternProperties" not in schema and "propertyNames" not in schema:
        extra = None  # what isn't declared is rarely meant
    closed = schema.get("additionalProperties") is False or schema.get("unevaluatedProperties") is False
    return _counted(Object(tuple(fields), extra, extra_name, is_closed=closed), schema, path)


def _extra(inner: Inner, schema: Schema, path: str) -> tuple[Form | None, Text | Matching, list[str] | None]:
    """What further properties are, how they are called, and their names if those are a list."""
    patterns = schema.get("patternProperties", {})
    if not isinstance(patterns, Mapping):
        raise invalid(f"{path}.patternProperties", "must be an object of schemas")
    others, place = schema.get("additionalProperties", True), f"{path}.additionalProperties"
    name: Text | Matching = Text()
    names: list[str] | None = None
    if patterns:
        place = f"{path}.patternProperties"
        if len(patterns) > 1 or any(schema.get(key) for key in ("properties", "required", "propertyNames")):
            raise unenforceable(place, "`patternProperties` next to each other or to other properties")
        ((pattern, others),) = patterns.items()
        name = plan_string({"pattern": pattern}, place)
    elif schema.get("propertyNames", True) is not True:
        name, names = _names(inner, schema["propertyNames"], f"{path}.propertyNames")
        if name != Text() and (schema.get("properties") or schema.get("required")):
            raise unenforceable(f"{path}.propertyNames", "`propertyNames` next to other properties")
    try:
        return inner.plan(others, place), name, names
    except Nothing:
        return None, name, names


def _names(inner: Inner, schema: Any, path: str) -> tuple[Text | Matching, list[str] | None]:
    form = inner.plan(schema, path)
    while isinstance(form, Ref):
        form = inner.named[form.name]
    match form:
        case Literals(texts):
            return Text(), [value for value in map(json.loads, texts) if isinstance(value, str)]
        case Text() | Matching():
            return form, None
        case Anything():
            return Text(), None
        case _:
            raise unenforceable(path, "this of names")


def _fields(
    inner: Inner,
    properties: Mapping[str, Any],
    names: list[str] | None,
    required: list[str],
    extra: Form | None,
    path: str,
) -> list[Field]:
    fields: list[Field] = []
    for name, value in properties.items():
        place = f"{path}.properties.{name}"
        if names is not None and name not in names:
            if name in required:
                raise Nothing(place)
            continue
        try:
            fields.append(Field(name, inner.plan(value, place), name in required))
        except Nothing:
            if name in required:
                raise
    further = [name for name in dict.fromkeys([*required, *(names or ())]) if name not in properties]
    for name in further:
        if name in required and (extra is None or (names is not None and name not in names)):
            raise Nothing(f"{path}.required")
        if extra is not None:
            fields.append(Field(name, extra, name in required))
    if sum(not field.is_required for field in fields) > MOST_OPTIONAL:
        raise unenforceable(f"{path}.properties", f"more than {MOST_OPTIONAL} properties that may be missing")
    return fields


def _counted(form: Object, schema: Schema, path: str) -> Object:
    """With as many properties as there may be."""
    least, most = bound(schema, "minProperties", path) or 0, bound(schema, "maxProperties", path)
    needed, known = sum(field.is_required for field in form.fields), len(form.fields)
    is_filled = least > needed
    # Names may be repeated among the others, so that two of them may be one.
    if least > max(needed, 1) or (is_filled and form.extra is not None and known):
        raise unenforceable(f"{path}.minProperties", "so many properties where some may be missing")
    most_extra = None
    if most is not None and (form.extra is not None or most < known):
        if most < max(needed, least):
            raise Nothing(f"{path}.maxProperties")
        if known > needed:
            raise unenforceable(f"{path}.maxProperties", "a number of properties where some may be missing")
        most_extra = most - known
    if is_filled and not known and form.extra is None:
        raise Nothing(f"{path}.minProperties")
    return replace(form, most_extra=most_extra, is_filled=is_filled)
