"""docs/openapi.yaml for tests: what it says, and validators of it.

Tests hold answers to a stricter reading than clients: a field that the file doesn't have may come to those one day,
but not to a test of today's code (`load_closed`).
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from jsonschema_rs import Draft202012Validator, Registry

from tests.stream_checker import check_stream, read_frames

FILE = Path(__file__).parents[1] / "docs" / "openapi.yaml"
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
Spec = dict[str, Any]


@functools.cache
def load() -> Spec:
    """The file. Not to be changed by anybody."""
    spec: Spec = yaml.load(FILE.read_bytes(), yaml.CSafeLoader)
    return spec


@functools.cache
def load_closed() -> Spec:
    """The same, and every object has only the fields that it names."""
    spec = copy.deepcopy(load())
    for schema in spec["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return spec


def list_operations() -> Iterator[tuple[str, str, Spec]]:
    """Method, path and operation of each."""
    for path, item in load()["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


def resolve(value: Any) -> Any:
    """What a reference refers to, or the value itself."""
    while isinstance(value, dict) and isinstance(value.get("$ref"), str):
        found: Any = load()
        for step in value["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        value = found
    return value


@functools.cache
def _registry() -> Registry:
    return Registry([("urn:closed", load_closed())])


@functools.cache
def validator_at(pointer: str) -> Draft202012Validator:
    """The validator of the schema at a JSON pointer (`/components/schemas/Message`)."""
    return Draft202012Validator({"$ref": f"urn:closed#{quote(pointer)}"}, registry=_registry())


def validate(value: Any, name: str) -> None:
    """Raise if a value is not what the schema of this name says."""
    validator_at(f"/components/schemas/{name}").validate(value)


def validate_stream(raw: bytes, *, may_fail: bool = False) -> list[Spec]:
    """The events of a stream, each checked against its schema, and all against the grammar.

    Args:
        may_fail: the stream may end with an `error` event.
    """
    events = read_frames(raw)
    for event in events:
        validate({"event": event["type"], "data": json.dumps(event)}, "ServerSentEvent")
        validate(event, "StreamEvent")
    check_stream(events, may_fail=may_fail)
    return events


def drop_null_unknowns(value: Any, pointer: str) -> Any:
    """A request without the fields that the file doesn't know and that are null: those are no fields at all."""
    schema = resolve(_at(pointer))
    return _drop(value, schema)


def _at(pointer: str) -> Any:
    return resolve({"$ref": f"#{pointer}"})


def _drop(value: Any, schema: Any) -> Any:
    schema = resolve(schema)
    if isinstance(value, list):
        items = [branch["items"] for branch in _branches(schema) if "items" in branch]
        return [_drop(item, items[0]) for item in value] if items else value
    if not isinstance(value, dict):
        return value
    closed = [branch for branch in _branches(schema) if branch.get("additionalProperties") is False]
    tagged = [branch for branch in closed if _is_tagged(value, branch)] or closed
    if not tagged:
        return value
    known = tagged[0]["properties"]
    return {
        name: _drop(inner, known[name]) if name in known else inner
        for name, inner in value.items()
        if name in known or inner is not None
    }


def _branches(schema: Any) -> list[Any]:
    schema = resolve(schema)
    parts = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    return [branch for part in parts for branch in _branches(part)] if parts else [schema]


def _is_tagged(value: Spec, branch: Spec) -> bool:
    """Whether the constants of a branch are those of the value."""
    constants = {name: field["const"] for name, field in branch["properties"].items() if "const" in field}
    return bool(constants) and all(value.get(name) == constant for name, constant in constants.items())
