"""The keywords of a schema: which say something, of which type, and two schemas as one.

Decides that two schemas may be joined where each keyword of both means the same on its own. Must not know forms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from node.schema.refusal import invalid, unenforceable

Schema = Mapping[str, Any]

STRING = ("pattern", "format", "minLength", "maxLength")
NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
ARRAY = (
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "unevaluatedItems",
)
OBJECT = (
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
)
_COMBINED = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const", "type", "not", "if", "then", "else")
ASSERTIONS = frozenset((*STRING, *NUMERIC, *ARRAY, *OBJECT, *_COMBINED, "$dynamicRef", "$recursiveRef"))
"""Every keyword that may forbid a value. What else a schema holds is an annotation."""
_LOWER = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_UPPER = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_TIGHTER: Mapping[str, Callable[..., Any]] = {**dict.fromkeys(_LOWER, max), **dict.fromkeys(_UPPER, min)}
_LISTS: dict[str, Callable[[list[Any], list[Any]], list[Any]]] = {
    "allOf": lambda one, other: [*one, *other],
    "required": lambda one, other: list(dict.fromkeys([*one, *other])),
    "enum": lambda one, other: _shared_values(one, other),
}
MOST_LISTED = 2000
_NEIGHBOURS = {
    "properties": ("additionalProperties", "patternProperties", "propertyNames"),
    "additionalProperties": ("properties", "patternProperties"),
    "patternProperties": ("properties", "additionalProperties"),
    "items": ("prefixItems",),
    "prefixItems": ("items", "additionalItems"),
}
"""What a keyword's meaning depends on."""


def assertions(schema: Schema) -> dict[str, Any]:
    """A schema without its annotations."""
    return {key: value for key, value in schema.items() if key in ASSERTIONS}


def types_of(schema: Schema, path: str) -> tuple[str, ...] | None:
    """The types that a schema names; None if it names none."""
    named = schema.get("type")
    if named is None:
        return None
    names = [named] if isinstance(named, str) else named
    known = ("string", "number", "integer", "boolean", "null", "object", "array")
    if not isinstance(names, list) or not names or any(name not in known for name in names):
        raise invalid(f"{path}.type", "not a type of JSON Schema")
    return tuple(dict.fromkeys(names))


def kinds_of(value: Any) -> set[str]:
    """The types of JSON Schema that a value has."""
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number", "integer"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def merge(left: Schema, right: Schema, path: str) -> dict[str, Any]:
    """A schema that allows what both allow.

    Raises:
        ApiError: they can't be joined keyword by keyword.
    """
    one, other = assertions(left), assertions(right)
    for here, there in ((one, other), (other, one)):
        for key in here.keys() - there.keys():
            if any(near in there and not _is_open(near, there[near]) for near in _NEIGHBOURS.get(key, ())):
                raise unenforceable(f"{path}.{key}", "this together with what else applies here")
    merged = one | {key: value for key, value in other.items() if key not in one}
    for key in one.keys() & other.keys():
        merged[key] = _join(key, one[key], other[key], path)
    return merged


def _is_open(near: str, value: Any) -> bool:
    return near in ("additionalProperties", "items") and value in (True, {})


def _join(key: str, one: Any, other: Any, path: str) -> Any:
    if isinstance(one, list) and isinstance(other, list) and key in _LISTS:
        if len(one) + len(other) > 2 * MOST_LISTED:
            raise unenforceable(f"{path}.{key}", "lists of so many entries together")
        if key == "required" and not all(isinstance(name, str) for name in (*one, *other)):
            raise invalid(f"{path}.{key}", "must be a list of names")
        return _LISTS[key](one, other)
    if _same(one, other):
        return one
    if key == "type":
        return _join_types(one, other, path)
    if key == "pattern":
        return [*_listed(one), *_listed(other)]
    if key in ("additionalProperties", "items"):
        return _join_schemas(one, other)
    if key == "properties" and isinstance(one, dict) and isinstance(other, dict):
        return one | {name: _join_schemas(one.get(name), value) for name, value in other.items()}
    if key in _TIGHTER and _are_numbers(one, other):
        return _TIGHTER[key](one, other)
    raise unenforceable(f"{path}.{key}", "this together with what else applies here")


def _join_schemas(one: Any, other: Any) -> Any:
    if one is None or one is True or one == {}:
        return other
    return one if other is True or other == {} or _same(one, other) else {"allOf": [one, other]}


def _join_types(one: Any, other: Any, path: str) -> list[str]:
    left = types_of({"type": one}, path) or ()
    right = types_of({"type": other}, path) or ()
    shared = [name for name in left if name in right or (name == "integer" and "number" in right)]
    shared += [name for name in right if name == "integer" and "number" in left and name not in shared]
    if not shared:
        raise Nothing(f"{path}.type")
    return shared


def _listed(pattern: Any) -> list[Any]:
    return pattern if isinstance(pattern, list) else [pattern]


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values: `true` isn't 1, however deep."""
    return bool(one == other) and (one is other or identity(one) == identity(other))


def _shared_values(one: list[Any], other: list[Any]) -> list[Any]:
    known = set(map(identity, other))
    return [value for value in one if identity(value) in known]


def identity(value: Any) -> str:
    """The same text for values that are equal in JSON Schema, where 1.0 is 1 and `true` is not."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case list():
            return list(map(_plain, value))
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case _:
            return value


class Nothing(Exception):
    """No value matches here. Not an error where there are alternatives."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def bound(schema: Schema, key: str, path: str) -> int | None:
    """A count, which is a whole number and not negative."""
    value = schema.get(key)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise invalid(f"{path}.{key}", "must be a whole number that is not negative")
    return int(value)


def limit(schema: Schema, key: str, path: str) -> Decimal | None:
    """A bound of numbers."""
    value = schema.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(f"{path}.{key}", "must be a number")
    return Decimal(str(value))
