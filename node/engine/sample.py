"""A made-up value for a JSON Schema, for the engine that has no model.

Decides the smallest value that comes to mind. Not always a match: the caller looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 40


def make_up(schema: Mapping[str, Any]) -> Any:
    """A value that often matches."""
    return _make(schema, schema, MAX_DEPTH)


def _make(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth == 0:
        return None
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if isinstance(schema.get("$ref"), str):
        return _make(_resolve(schema["$ref"], root), root, depth - 1)
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return _make(schema[name][0], root, depth - 1)
    return _of_type(_type_of(schema), schema, root, depth)


def _type_of(schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    return kind[0] if isinstance(kind, list) and kind else kind


def _of_type(kind: Any, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    match kind:
        case "string":
            return "scripted".ljust(_whole(schema.get("minLength")), "x")[: _whole(schema.get("maxLength"), 10_000)]
        case "integer" | "number":
            return max(_whole(schema.get("minimum")), _whole(schema.get("exclusiveMinimum"), -1) + 1)
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            return [
                _make(schema.get("items"), root, depth - 1) for _ in range(min(_whole(schema.get("minItems")), 100))
            ]
        case _:
            return _make_object(schema, root, depth)


def _make_object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return {}
    return {name: _make(properties.get(name), root, depth - 1) for name in required if isinstance(name, str)}


def _whole(value: Any, otherwise: int = 0) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < 10_000 else otherwise


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found
