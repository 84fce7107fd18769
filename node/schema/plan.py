"""A JSON Schema to the form of what it allows, or the keyword that can't be enforced.

Decides the reading of every keyword: what the form doesn't say, the schema must not say. Where a schema leaves open
what nobody means (undeclared properties, types that its keywords don't speak of), the form is narrower. Follows draft
2020-12, and draft 7 where they don't contradict. Must not know grammars.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, reduce
from typing import Any
from urllib.parse import unquote

import orjson

from node.schema import disjoint, finite
from node.schema.form import Anything, Either, Form, Literals, Plan, Ref
from node.schema.keywords import (
    ARRAY,
    NUMERIC,
    OBJECT,
    STRING,
    Nothing,
    Schema,
    assertions,
    identity,
    kinds_of,
    merge,
    types_of,
)
from node.schema.objects import plan_array, plan_object
from node.schema.refusal import invalid, unenforceable
from node.schema.scalars import plan_number, plan_string

MOST_NODES = 4000
MOST_DEPTH = 100
MOST_LITERALS = 2000
MOST_ONE_OF = 100
_NUMBER_NODES = 12
"""A bounded number counts as so many, since it is a pattern of many parts."""
_KEYWORDS = {"string": STRING, "number": NUMERIC, "integer": NUMERIC, "array": ARRAY, "object": OBJECT}
_VALUES = ("const", "enum", "default", "examples")
_MOST_INDEX_DIGITS = 6
_NEVER = ("not", "if", "$dynamicRef", "$recursiveRef")


def plan_schema(schema: Any, path: str) -> Plan:
    """The form of a whole schema.

    Raises:
        ApiError: `INVALID_REQUEST` for what is no schema or matches nothing, `UNSUPPORTED_PARAMETER` for what can't
            be enforced; `param` is the path of the keyword.
    """
    try:
        return _plan(orjson.dumps(schema), path)
    except orjson.JSONEncodeError:
        raise invalid(path, "a schema must be JSON") from None


@lru_cache(96)
def _plan(data: bytes, path: str) -> Plan:
    """Agents send the same schemas each turn."""
    schema = orjson.loads(data)
    _check_ids(schema, path)
    planner = Planner(schema, path)
    try:
        root = planner.plan(schema, path)
    except Nothing as nothing:
        raise invalid(nothing.path, "no value matches this") from None
    return finite.keep_finite(Plan(root, planner.named), planner.paths)


def _check_ids(root: Any, path: str) -> None:
    """Below an `$id` of its own, a reference means something else."""
    nodes: list[Any] = list(root.values()) if isinstance(root, dict) else []
    for node in nodes:  # grows as it goes
        if isinstance(node, dict):
            if isinstance(node.get("$id"), str):
                raise unenforceable(path, "`$id` below the root")
            nodes += [value for key, value in node.items() if key not in _VALUES]
        elif isinstance(node, list):
            nodes += node


class Planner:
    """One schema on its way to a form."""

    def __init__(self, root: Any, path: str) -> None:
        self.named: dict[str, Form] = {}
        self.paths: dict[str, str] = {}
        self._root, self._path = root, path
        self._names: dict[int, str] = {}
        self._open: tuple[int, ...] = ()  # references that are followed, and nothing was written since
        self._nodes = self._depth = 0
        self._kept: list[Any] = []  # joined schemas, so that no other gets their id

    def plan(self, schema: Any, path: str) -> Form:
        """The form of one schema."""
        self._nodes += 1
        if self._nodes > MOST_NODES or self._depth > MOST_DEPTH:
            raise unenforceable(self._path, "a schema with so many parts")
        if schema is True or schema == {}:
            return Anything()
        if schema is False:
            raise Nothing(path)
        if not isinstance(schema, Mapping):
            raise invalid(path, "a schema is an object, true or false")
        self._depth += 1
        try:
            return self._plan(schema, path)
        finally:
            self._depth -= 1

    @contextmanager
    def inside(self) -> Iterator[None]:
        """In an array or an object, where a reference to what is around it is no endless loop."""
        outer, self._open = self._open, ()
        try:
            yield
        finally:
            self._open = outer

    def _plan(self, schema: Schema, path: str) -> Form:
        if "not" in schema and schema["not"] in ({}, True):
            raise Nothing(f"{path}.not")
        for key in _NEVER:
            if key in schema and not (key == "if" and not {"then", "else"} & schema.keys()):
                raise unenforceable(f"{path}.{key}", f"`{key}`")
        if "$ref" in schema:
            return self._follow(schema, path)
        if "allOf" in schema:
            return self.plan(self._keep(self._join(schema, path)), path)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._alternatives(schema, key, path)
        if "enum" in schema or "const" in schema:
            return self._literals(schema, path)
        return self._by_type(schema, path)

    def _keep(self, schema: dict[str, Any]) -> dict[str, Any]:
        self._kept.append(schema)
        return schema

    def _merge(self, left: Schema, right: Schema, path: str) -> dict[str, Any]:
        """Both as one, which counts as much as both are long."""
        self._nodes += 1 + (len(orjson.dumps(left)) + len(orjson.dumps(right)) >> 10)
        if self._nodes > MOST_NODES:
            raise unenforceable(self._path, "a schema with so many parts")
        return merge(left, right, path)

    def _follow(self, schema: Schema, path: str) -> Form:
        target, target_path = self._target(schema["$ref"], f"{path}.$ref")
        rest = {key: value for key, value in assertions(schema).items() if key != "$ref"}
        key = id(schema) if rest else id(target)
        if key in self._open:
            raise invalid(f"{path}.$ref", "this refers to itself without end")
        if key not in self._names:
            name = self._names[key] = f"d{len(self.named)}_{len(self._names)}"
            self.paths[name] = target_path
            outer, self._open = self._open, (*self._open, key)
            try:
                if rest:
                    joined = self._merge(self._resolved(target, path), rest, path)
                    self.named[name] = self.plan(self._keep(joined), path)
                else:
                    self.named[name] = self.plan(target, target_path)
            except Nothing:
                self.named[name] = Literals(())  # for what refers to it from inside
                del self._names[key]
                raise
            finally:
                self._open = outer
        return Ref(self._names[key])

    def _target(self, ref: Any, path: str) -> tuple[Any, str]:
        if not isinstance(ref, str):
            raise invalid(path, "must be a string")
        if ref != "#" and not ref.startswith("#/"):
            raise unenforceable(path, "references other than by `#/…`")
        found, place = self._root, self._path
        for step in ref.split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and _is_index(step) and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, Mapping) and step in found:
                found = found[step]
            else:
                raise invalid(path, "this refers to nothing")
            place = f"{place}.{step}"
        return found, place

    def _resolved(self, schema: Any, path: str, most_steps: int = MOST_DEPTH) -> dict[str, Any]:
        """A schema to be joined with another: an object without a reference."""
        for left in range(most_steps, 0, -1):
            if schema is True:
                return {}
            if schema is False:
                raise Nothing(path)
            if not isinstance(schema, Mapping):
                raise invalid(path, "a schema is an object, true or false")
            if "$ref" not in schema:
                return dict(schema)
            target, _ = self._target(schema["$ref"], f"{path}.$ref")
            rest = {key: value for key, value in assertions(schema).items() if key != "$ref"}
            schema = self._merge(self._resolved(target, path, left - 1), rest, path) if rest else target
        raise invalid(f"{path}.$ref", "this refers to itself without end")

    def _join(self, schema: Schema, path: str) -> dict[str, Any]:
        parts = schema["allOf"]
        if not isinstance(parts, list) or not parts:
            raise invalid(f"{path}.allOf", "must be a list of schemas")
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        resolved = [self._resolved(part, f"{path}.allOf.{index}") for index, part in enumerate(parts)]
        return reduce(lambda left, right: self._merge(left, right, path), resolved, rest)

    def _alternatives(self, schema: Schema, key: str, path: str) -> Form:
        options = schema[key]
        if not isinstance(options, list) or not options:
            raise invalid(f"{path}.{key}", "must be a list of schemas")
        if key == "oneOf" and len(options) > MOST_ONE_OF:
            raise unenforceable(f"{path}.oneOf", f"more than {MOST_ONE_OF} alternatives that exclude each other")
        rest = {name: value for name, value in assertions(schema).items() if name != key}
        forms: list[Form] = []
        for index, option in enumerate(options):
            place = f"{path}.{key}.{index}"
            try:
                if rest:
                    option = self._keep(self._merge(self._resolved(option, place), rest, place))
                forms.append(self.plan(option, place))
            except Nothing:
                continue
        if not forms:
            raise Nothing(f"{path}.{key}")
        if key == "oneOf" and len(forms) > 1:
            apart = disjoint.tell_apart(forms, self.named)
            if apart is None:
                raise unenforceable(f"{path}.oneOf", "that only one of these matches; `anyOf` is enforced")
            forms = apart
        return forms[0] if len(forms) == 1 else Either(tuple(forms))

    def _literals(self, schema: Schema, path: str) -> Form:
        key = "const" if "const" in schema else "enum"
        values = [schema["const"]] if key == "const" else schema["enum"]
        if not isinstance(values, list):
            raise invalid(f"{path}.enum", "must be a list")
        if len(values) > MOST_LITERALS:
            raise unenforceable(f"{path}.enum", f"more than {MOST_LITERALS} values")
        if key == "const" and isinstance(schema.get("enum"), list):
            allowed = set(map(identity, schema["enum"]))
            values = [value for value in values if identity(value) in allowed]
        types = types_of(schema, path)
        if types is not None:
            values = [value for value in values if kinds_of(value) & set(types)]
        for value in values:
            for other in kinds_of(value):
                for word in _KEYWORDS.get(other, ()):
                    if word in schema and word != "format":
                        raise unenforceable(f"{path}.{word}", f"this next to `{key}`")
        if not values:
            raise Nothing(f"{path}.{key}")
        return Literals(tuple(dict.fromkeys(map(_encode, values))))

    def _by_type(self, schema: Schema, path: str) -> Form:
        types = types_of(schema, path)
        if types is None:
            types = tuple(
                name
                for name in ("string", "number", "array", "object")
                if any(key in schema for key in _KEYWORDS[name])
            )
            if not types:
                return Anything()
        if "number" in types:
            types = tuple(name for name in types if name != "integer")
        forms: list[Form] = []
        empty: Nothing | None = None
        for name in types:
            try:
                forms.append(self._of_type(name, schema, path))
            except Nothing as nothing:
                empty = nothing
        if not forms:
            raise empty or Nothing(path)
        return forms[0] if len(forms) == 1 else Either(tuple(forms))

    def _of_type(self, name: str, schema: Schema, path: str) -> Form:
        match name:
            case "string":
                return plan_string(schema, path)
            case "number" | "integer":
                self._nodes += _NUMBER_NODES
                return plan_number(schema, path, is_integer=name == "integer")
            case "array":
                return plan_array(self, schema, path)
            case "object":
                return plan_object(self, schema, path)
            case "boolean":
                return Literals(("true", "false"))
            case _:
                return Literals(("null",))


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) <= _MOST_INDEX_DIGITS


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
