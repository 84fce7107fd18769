"""Which schemas are within bounds, and which a model can be kept to. No engine, no grammar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node.schema import chars
from node.schema.keywords import merge
from node.wire.schema import check_schema, require_enforceable
from shared.errors import INVALID_REQUEST, UNSUPPORTED_PARAMETER, ApiError

ZOD_EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
CLIENTS = Path(__file__).parents[2] / "contract" / "clients"


def refusal(schema: Any) -> ApiError:
    """How a schema is refused."""
    with pytest.raises(ApiError) as caught:
        require_enforceable(schema, "s", is_input=False)
    return caught.value


def find_unenforceable(schema: Any, path: str) -> tuple[str | None, str] | None:
    """The path of the keyword that a model can't be kept to, and the words."""
    try:
        require_enforceable(schema, path, is_input=False)
    except ApiError as refused:
        return refused.param, refused.message
    return None


def nested(levels: int) -> dict[str, Any]:
    """Objects in objects: two levels of JSON each."""
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def test_a_schema_may_have_32_levels_and_not_33() -> None:
    check_schema(nested(31), "tools.0.input_schema")
    with pytest.raises(ApiError) as caught:
        check_schema(nested(32), "tools.0.input_schema")
    assert caught.value.condition == INVALID_REQUEST
    assert caught.value.param == "tools.0.input_schema"
    assert caught.value.message.startswith("tools.0.input_schema: ")


def test_a_depth_bomb_is_no_recursion_error() -> None:
    with pytest.raises(ApiError):
        check_schema(nested(100_000), "s")


def test_a_schema_may_have_64_kib() -> None:
    check_schema({"description": "x" * 65_000}, "s")
    with pytest.raises(ApiError) as caught:
        check_schema({"description": "x" * 66_000}, "s")
    assert caught.value.param == "s"


@pytest.mark.parametrize(
    ("schema", "param"),
    [
        ({"not": {"type": "string"}}, "s.not"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "s.if"),
        ({"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}}, "s.dependentSchemas"),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, "s.dependentRequired"),
        ({"type": "array", "contains": {"type": "integer"}}, "s.contains"),
        ({"type": "array", "uniqueItems": True}, "s.uniqueItems"),
        ({"type": "integer", "multipleOf": 5}, "s.multipleOf"),
        ({"$ref": "http://169.254.169.254/x"}, "s.$ref"),
        ({"$ref": "file:///etc/passwd"}, "s.$ref"),
        ({"$dynamicRef": "#x"}, "s.$dynamicRef"),
        ({"type": "string", "pattern": "^(?!a).$"}, "s.pattern"),
        ({"type": "string", "pattern": "^(a)\\1$"}, "s.pattern"),
        ({"type": "string", "pattern": "^\\bx$"}, "s.pattern"),
        ({"type": "string", "pattern": "^(a|^b)$"}, "s.pattern"),
        ({"type": "string", "format": "regex"}, "s.format"),
        ({"type": "string", "format": "email", "maxLength": 5}, "s.maxLength"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "s.oneOf"),
        ({"allOf": [{"not": {}}, {"multipleOf": 2, "type": "integer"}]}, "s.not"),
        (
            {"properties": {"a.b": {"items": [{"type": "number", "multipleOf": 1}]}}},
            "s.properties.a.b.items.0.multipleOf",
        ),
        ({"$defs": {"d": {"not": {"const": 1}}}, "$ref": "#/$defs/d"}, "s.$defs.d.not"),
        ({"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {}}}, "s.patternProperties"),
        ({"type": "object", "minProperties": 2, "additionalProperties": {}}, "s.minProperties"),
    ],
)
def test_what_cannot_be_enforced_is_refused_at_its_keyword(schema: Any, param: str) -> None:
    error = refusal(schema)
    assert error.param == param
    assert error.message.startswith(f"{param}: ")
    assert error.condition in (UNSUPPORTED_PARAMETER, INVALID_REQUEST)
    found = find_unenforceable(schema, "s")
    assert found is not None
    assert found[0] == param


@pytest.mark.parametrize(
    ("schema", "param"),
    [
        ({"type": "foo"}, "s.type"),
        ({"type": []}, "s.type"),
        ({"type": "string", "minLength": -3}, "s.minLength"),
        ({"type": "string", "minLength": True}, "s.minLength"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "s.maxLength"),
        ({"type": "string", "pattern": "^[a"}, "s.pattern"),
        ({"type": "string", "pattern": "a**"}, "s.pattern"),
        ({"type": "string", "pattern": 5}, "s.pattern"),
        ({"type": "integer", "minimum": "5"}, "s.minimum"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "s.maximum"),
        ({"enum": []}, "s.enum"),
        ({"enum": "a"}, "s.enum"),
        ({"type": "integer", "const": "a"}, "s.const"),
        ({"anyOf": []}, "s.anyOf"),
        ({"properties": 5}, "s.properties"),
        ({"properties": {"a": 5}}, "s.properties.a"),
        ({"type": "object", "required": "a"}, "s.required"),
        ({"type": "object", "properties": {}, "required": ["a"], "additionalProperties": False}, "s.required"),
        ({"$ref": "#"}, "s.$ref"),
        ({"$ref": "#/$defs/none"}, "s.$ref"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "s.$defs.a.$ref"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {}]}}, "$ref": "#/$defs/a"}, "s.$defs.a.anyOf.0.$ref"),
        ({"properties": {"n": {"$ref": "#"}}, "required": ["n"]}, "s"),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "minItems": 1}}, "$ref": "#/$defs/a"}, "s.$defs.a"),
    ],
)
def test_what_is_no_schema_or_matches_nothing_is_an_invalid_request(schema: Any, param: str) -> None:
    error = refusal(schema)
    assert (error.condition, error.param) == (INVALID_REQUEST, param)


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$schema": "x",
            "$id": "y",
            "title": "t",
            "description": "d",
            "default": 1,
            "examples": [1],
            "$comment": "c",
        },
        {"type": "string", "deprecated": True, "readOnly": True, "x-order": 3, "format": "password"},
        {"type": ["string", "null"], "minLength": 1, "maxLength": 524_288},
        {"type": "string", "maxLength": 10**9},
        {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None, "title": "When"},
        {"$defs": {"A": {"enum": ["a", "b"], "type": "string"}}, "allOf": [{"$ref": "#/$defs/A"}], "default": "a"},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {
            "$defs": {
                "Cat": {"properties": {"kind": {"const": "cat", "default": "cat"}, "n": {"type": "integer"}}},
                "Dog": {"properties": {"kind": {"const": "dog", "default": "dog"}}},
            },
            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
            "discriminator": {"propertyName": "kind"},
        },
        {"type": "integer", "exclusiveMinimum": 0, "maximum": 9_007_199_254_740_991},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$", "maxLength": 64},
        {"allOf": [{"pattern": "^[^\\n\\r]*$"}, {"pattern": "^[\\s\\S]{0,300}$"}], "type": "string"},
        {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}},
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "number"}},
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "minItems": 2, "maxItems": 2},
        {"type": "array", "items": [{"type": "string"}], "additionalItems": False},
        {"properties": {"child": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["child"]},
        {
            "type": "string",
            "format": "email",
            "pattern": ZOD_EMAIL,
        },
    ],
)
def test_what_pydantic_and_zod_write_is_taken(schema: dict[str, Any]) -> None:
    assert find_unenforceable(schema, "s") is None


def test_every_schema_that_recorded_clients_sent_can_be_enforced() -> None:
    files = sorted(CLIENTS.glob("*.json"))
    assert len(files) > 90
    for file in files:
        body = json.loads(file.read_text()).get("body")
        for tool in (body or {}).get("tools") or []:
            if "input_schema" in tool:
                check_schema(tool["input_schema"], tool["name"])
                assert find_unenforceable(tool["input_schema"], tool["name"]) is None


def test_the_input_of_a_tool_is_an_object() -> None:
    with pytest.raises(ApiError) as caught:
        require_enforceable({"type": "string"}, "s", is_input=True)
    assert caught.value.param == "s.type"
    require_enforceable({}, "s", is_input=True)


def hostile() -> dict[str, Any]:
    """Schemas that are meant to take long."""
    graph = {
        f"n{i}": {
            "anyOf": [
                {"properties": {"v": {"$ref": f"#/$defs/n{(i + j) % 40}"}}, "required": ["v"]} for j in range(20)
            ]
        }
        for i in range(40)
    }
    doubling = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(300)}
    product: dict[str, Any] = {"type": "string"}
    for level in range(9):
        product = {"anyOf": [product, {"properties": {f"x{level}": product}}]}
    return {
        "dots": {"type": "string", "pattern": "^.{5000}$"},
        "letters at least": {"type": "string", "pattern": "^[a-z]{4000,5000}$"},
        "nested quantifiers": {"type": "string", "pattern": "^((a{100}){100}){100}$"},
        "backtracking": {"type": "string", "pattern": "^(a+)+b$"},
        "overlap": {"type": "string", "pattern": "(x|y|[^z]*)*q"},
        "800 optional": {"properties": {f"p{i}": {"type": "string"} for i in range(800)}},
        "graph": {"$defs": graph, "$ref": "#/$defs/n0"},
        "doubling": {"$defs": {**doubling, "d300": {"type": "object"}}, "$ref": "#/$defs/d0"},
        "huge enum": {"enum": [f"v{i}" for i in range(6000)]},
        "many oneOf": {"oneOf": [{"properties": {"a": {"const": i}}} for i in range(700)]},
        "min items": {"type": "array", "minItems": 10**6},
        "long string": {"type": "string", "minLength": 10**6},
        "far numbers": {"type": "integer", "minimum": 1e300},
        "long pattern": {"type": "string", "pattern": "^" + "(a|b|[c-f]+)" * 4000 + "$"},
        "parentheses": {"type": "string", "pattern": "(" * 5000 + ")" * 5000},
        "product": product,
    }


@pytest.mark.parametrize("name", sorted(set(hostile()) - {"product"}))
def test_a_hostile_schema_is_refused_before_it_costs_much(name: str) -> None:
    schema = hostile()[name]
    refusal(schema)


def test_a_product_of_alternatives_costs_no_more_than_its_size() -> None:
    assert find_unenforceable(hostile()["product"], "s") is None


def test_alternatives_that_double_at_every_level_are_told_apart() -> None:
    doubled = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    schema = {
        "$defs": {**doubled, "d40": {"type": "string"}},
        "properties": {"x": {"oneOf": [{"$ref": "#/$defs/d0"}, {"type": "integer"}]}},
    }
    require_enforceable(schema, "s", is_input=False)
    assert (
        refusal({"oneOf": [{"$ref": "#/$defs/d0"}, {"type": "string"}], "$defs": schema["$defs"]}).param == "s.oneOf"
    )


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), ([1], [1.0]), ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}), (0, -0.0)]
)
def test_constants_that_are_equal_in_json_schema_are_not_told_apart(one: Any, other: Any) -> None:
    assert refusal({"oneOf": [{"const": one}, {"const": other}]}).param == "s.oneOf"
    require_enforceable({"allOf": [{"const": one}, {"enum": [other]}]}, "s", is_input=False)


@pytest.mark.parametrize(("one", "other"), [(1, True), ([0], [False]), ({"a": 1}, {"a": True})])
def test_true_is_not_one_however_deep(one: Any, other: Any) -> None:
    require_enforceable({"oneOf": [{"const": one}, {"const": other}]}, "s", is_input=False)
    refusal({"allOf": [{"const": one}, {"const": other}]})


@pytest.mark.parametrize("key", ["required", "enum", "properties"])
def test_joining_long_lists_again_and_again_is_refused(key: str) -> None:
    names = [f"n{i}" for i in range(1990)]

    def part(names: list[str]) -> Any:
        return {name: {"type": "string"} for name in names} if key == "properties" else names

    schema = {
        "$defs": {"a": {key: part([*names, "a"])}, "b": {key: part([*names, "b"])}},
        "allOf": [{"$ref": f"#/$defs/{'ab'[i % 2]}"} for i in range(3000)],
    }
    assert refusal(schema).condition == UNSUPPORTED_PARAMETER


def test_joined_lists_keep_their_order() -> None:
    joined = merge({"required": ["b", "a"], "enum": [3, 1, 2.0]}, {"required": ["c", "a"], "enum": [2, 3]}, "s")
    assert joined == {"required": ["b", "a", "c"], "enum": [3, 2.0]}
    assert refusal({"allOf": [{"required": [{}]}, {"required": [1]}]}).condition == INVALID_REQUEST


def test_a_reference_by_a_number_of_many_digits_refers_to_nothing() -> None:
    assert (
        refusal({"properties": {"x": {"$ref": "#/anyOf/" + "0" * 5000}}, "anyOf": [{}]}).condition == INVALID_REQUEST
    )


def test_an_id_below_the_root_is_refused_and_a_property_of_that_name_is_not() -> None:
    inner = {"$id": "https://x.example/y", "$ref": "#/$defs/b"}
    assert refusal({"properties": {"x": inner}}).condition == UNSUPPORTED_PARAMETER
    allowed = {"$id": "https://x.example", "properties": {"$id": {"type": "string"}, "c": {"const": {"$id": "x"}}}}
    require_enforceable(allowed, "s", is_input=True)


def test_long_chains_of_lists_that_may_not_be_empty_have_an_end_or_none() -> None:
    chain: dict[str, Any] = {
        f"d{i}": {"type": "array", "minItems": 1, "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(600)
    }
    schema = {
        "type": "array",
        "prefixItems": [{"$ref": f"#/$defs/d{i}"} for i in range(600, -1, -1)],
        "$defs": {**chain, "d600": {"type": "string"}},
    }
    require_enforceable(schema, "s", is_input=False)
    endless = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/d600"}}
    assert refusal(schema | {"$defs": {**chain, "d600": endless}, "minItems": 1}).condition == INVALID_REQUEST


@pytest.mark.parametrize(
    ("left", "right", "kept"),
    [
        (((0, 9),), ((2, 3), (5, 5)), ((0, 1), (4, 4), (6, 9))),
        (((0, 3), (5, 9)), ((2, 6),), ((0, 1), (7, 9))),
        (((0, 3), (5, 9)), ((0, 20),), ()),
        (((5, 9),), ((0, 1), (9, 30)), ((5, 8),)),
        (((1, 2), (4, 5), (7, 8)), ((3, 3), (6, 6)), ((1, 2), (4, 5), (7, 8))),
    ],
)
def test_one_set_of_characters_is_taken_from_another(left: Any, right: Any, kept: Any) -> None:
    assert chars.without(left, right) == kept
