"""The requests in docs/openapi.yaml against the types that the node reads them with, name by name.

Both sides are brought into one form: the words for readers are left out, names of schemas are resolved, and unions
are lists of their branches. What is left has to be equal: fields, which are required, null, kinds, values and bounds.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from node.wire import parse, request
from node.wire.request import MessagesRequest, Wire
from tests.openapi import load, resolve

_FOR_READERS = {
    "description",
    "title",
    "example",
    "examples",
    "default",
    "discriminator",
    "format",
    "contentEncoding",
}
_ELSEWHERE = {"maxItems"}  # `parse.py` counts before any type is looked at
_WIRE = {
    name: model
    for name, model in vars(request).items()
    if isinstance(model, type) and issubclass(model, Wire) and model is not Wire
}


def normal(schema: Any, definitions: Any = None) -> Any:
    """The form in which both sides are compared; references to objects stay names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in _WIRE:
            return {"is": name}
        return normal((definitions or {}).get(name) or resolve(schema), definitions)
    kept = {name: value for name, value in schema.items() if name not in _FOR_READERS | _ELSEWHERE}
    branches = [*kept.pop("oneOf", ()), *kept.pop("anyOf", ())]
    if branches:
        assert not kept, kept
        flat = [part for branch in branches for part in _parts(normal(branch, definitions))]
        return {"one of": sorted(flat, key=_text)}
    return _normal_branch(kept, definitions)


def _normal_branch(schema: Any, definitions: Any) -> Any:
    """One kind of value; a list of kinds is a union."""
    kinds = schema.get("type")
    if isinstance(kinds, list):
        rest = {name: value for name, value in schema.items() if name != "type"}
        values = rest.pop("enum", None)
        typed = [{"type": kind, **rest} if kind != "null" else {"type": kind} for kind in kinds]
        if values is not None:
            typed = [{"enum": [value for value in values if value is not None]}, {"type": "null"}]
        return {"one of": sorted((normal(each, definitions) for each in typed), key=_text)}
    if "const" in schema:
        return {"enum": [schema["const"]]}
    if "enum" in schema:
        return {"enum": sorted(schema["enum"])}
    if "properties" in schema:
        return {"properties": {name: normal(field, definitions) for name, field in schema["properties"].items()}}
    if "items" in schema:
        return {**schema, "items": normal(schema["items"], definitions)}
    return schema


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _parts(schema: Any) -> list[Any]:
    return list(schema["one of"]) if "one of" in schema else [schema]


def test_every_type_of_the_wire_is_in_the_file() -> None:
    described = set(load()["components"]["schemas"])
    assert set(_WIRE) <= described


@pytest.mark.parametrize("name", _WIRE)
def test_fields_kinds_values_and_bounds_are_the_same(name: str) -> None:
    model: type[BaseModel] = _WIRE[name]
    of_wire = model.model_json_schema(by_alias=True)
    of_file = load()["components"]["schemas"][name]
    assert of_file["type"] == "object"
    assert of_file["additionalProperties"] is False  # parse.py refuses what the types keep as extra
    assert set(of_file.get("required", ())) == set(of_wire.get("required", ()))
    definitions = of_wire.get("$defs", {})
    ours, theirs = normal(of_file)["properties"], normal(of_wire, definitions)["properties"]
    assert set(ours) == set(theirs)
    for field in ours:
        assert ours[field] == theirs[field], field


def test_counting_takes_the_fields_of_a_message_but_needs_no_max_tokens() -> None:
    counted = load()["components"]["schemas"]["CountTokensRequest"]
    fields = load()["components"]["schemas"]["MessagesRequest"]["properties"]
    prefix = "#/components/schemas/MessagesRequest/properties/"
    expected: dict[str, object] = {name: {"$ref": prefix + name} for name in fields}
    expected["max_tokens"] = {"anyOf": [{"$ref": prefix + "max_tokens"}, {"type": "null"}]}
    assert counted["properties"] == expected
    assert counted["additionalProperties"] is False
    of_wire = set(MessagesRequest.model_json_schema()["required"])
    assert set(counted["required"]) == of_wire - {"max_tokens"}


def test_the_bounds_of_lists_are_those_that_the_parser_counts() -> None:
    fields = load()["components"]["schemas"]["MessagesRequest"]["properties"]
    assert fields["messages"]["maxItems"] == parse.MAX_MESSAGES
    assert fields["tools"]["anyOf"][0]["maxItems"] == parse.MAX_TOOLS
    assert fields["stop_sequences"]["anyOf"][0]["maxItems"] == parse.MAX_STOPS
    said = load()["info"]["description"]
    for bound in (parse.MAX_BLOCKS, parse.MAX_VALUES, parse.MAX_STOP_CHARACTERS):
        assert f"{bound:,}" in said
