"""An XML parameter's text as JSON, by what its schema declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from node.engine.dialect.declared import Declared, is_declared, read_declared
from node.engine.dialect.json_text import decode, encode
from node.engine.dialect.values import Value
from node.json_levels import MOST_LEVELS, is_deeper

STRING, NOTHING = frozenset({"string"}), Declared()


def converted(raw: str, schema: Any, root: Mapping[str, Any] | None = None) -> Any:
    """The value that text becomes, whatever the chunks."""
    declared = read_declared({"properties": {"a": schema}, **(root or {})}, "a")
    texts = set()
    for size in (max(1, len(raw)), 1, 3):
        value = Value(declared)
        parts = [value.add(raw[start : start + size]) for start in range(0, len(raw), size)]
        texts.add("".join([*parts, value.end()]))
    (text,) = texts
    return json.loads(text)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("string", "5", "5"),
        ("string", "null", "null"),
        ("string", ' "x"\n', ' "x"\n'),
        ("string", "", ""),
        ("integer", "5", 5),
        ("integer", " -5\n", -5),
        ("integer", "3.0", 3),
        ("integer", "3.5", 3.5),
        ("integer", "1e300", 1e300),
        ("integer", "five", "five"),
        ("integer", "", ""),
        ("integer", "1" * 5000, "1" * 5000),
        ("number", "3.0", 3.0),
        ("number", "3", 3),
        ("number", "1e999", "1e999"),
        ("number", "NaN", "NaN"),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("boolean", "yes", "yes"),
        ("null", "null", None),
        ("null", "None", None),
        ("array", '[1, "a\nb"]', [1, "a\nb"]),
        ("array", "[1, 2", "[1, 2"),
        ("array", "[" * 5000, "[" * 5000),
        ("array", "[" * 5000 + "]" * 5000, "[" * 5000 + "]" * 5000),
        ("object", '{"a": [True, None, "True \\" None"]}', {"a": [True, None, 'True " None']}),
        ("object", '{"a": Truely}', '{"a": Truely}'),
        (["string", "null"], "null", None),
        (["string", "null"], "nullable", "nullable"),
        (["string", "null"], "", ""),
        (["string", "null"], "5", "5"),
        (["string", "integer"], "5", 5),
        (["string", "integer"], "5.0", 5),
        (["string", "integer"], "5.5", "5.5"),
        (["string", "integer"], "5 apples", "5 apples"),
        (["string", "number"], "5", 5),
        (["string", "array"], '["x"]', ["x"]),
        (["string", "array"], "[x]", "[x]"),
        (["string", "array"], "x", "x"),
        (["string", "object"], "[1]", "[1]"),
        (["integer", "number"], "3.0", 3.0),
        (["unheard", "integer"], "3", 3),
    ],
)
def test_a_type_decides(kind: str | list[str], raw: str, value: Any) -> None:
    found = converted(raw, {"type": kind})
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("5", 5),
        ("true", True),
        ("None", None),
        ('{"a": 1}', {"a": 1}),
        ("[]", []),
        ('"x"', '"x"'),
        ("x", "x"),
        ("", ""),
        ("  \n5", 5),
        ("5 apples", "5 apples"),
        ("nothing", "nothing"),
        ("1" * 100, "1" * 100),
        (" " * 100 + "[1]", " " * 100 + "[1]"),
    ],
)
@pytest.mark.parametrize("schema", [{}, None, True, {"type": "unheard"}, {"type": 7}, {"description": "x"}])
def test_without_a_type_json_comes_first(schema: Any, raw: str, value: Any) -> None:
    assert converted(raw, schema) == value


@pytest.mark.parametrize(
    ("schema", "raw", "value"),
    [
        ({"enum": ["f", "g"]}, "f ", "f"),
        ({"enum": ["f", "f "]}, "f ", "f "),
        ({"enum": ["f", "g"]}, "h ", "h "),
        ({"enum": ["f", "g"]}, '"f"', '"f"'),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"enum": ["a", 1, None]}, "1", 1),
        ({"enum": ["a", 1, None]}, "null", None),
        ({"type": "integer", "enum": [1, 2]}, "1", 1),
        ({"type": ["string", "null"], "enum": ["null", None]}, "null", "null"),
        ({"const": "f"}, "\nf", "f"),
        ({"type": "string", "enum": [f"m{n}" for n in range(2000)]}, "m5 ", "m5 "),
        ({"enum": []}, "x", "x"),
        ({"anyOf": [{"enum": ["f"]}, {"const": "g"}, {"type": "null"}]}, "g ", "g"),
        ({"anyOf": [{"enum": ["f"]}, {"type": "string"}]}, "f ", "f "),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "5", 5),
        ({"anyOf": [{"type": "string"}, {}]}, "5", 5),
        ({"allOf": [{"description": "x"}, {"type": "integer"}]}, "5.0", 5),
        ({"allOf": [{"description": "x"}]}, "5.0", 5.0),
        ({"$ref": "#/$defs/x~1y"}, "5.0", 5),
        ({"$ref": "#/$defs/chain"}, "5.0", 5),
        ({"$ref": "#/$defs/loop"}, "5", 5),
        ({"$ref": "https://elsewhere.example/x"}, "5", 5),
        ({"$ref": "#/$defs/missing/more"}, "5", 5),
        ({"$ref": 5}, "5", 5),
        ({"anyOf": [{"$ref": "#/$defs/bush"}] * 100}, "5", 5),
    ],
)
def test_what_a_schema_is_put_together_from_counts(schema: Any, raw: str, value: Any) -> None:
    root = {
        "$defs": {
            "x/y": {"type": "integer"},
            "chain": {"$ref": "#/$defs/x~1y"},
            "loop": {"$ref": "#/$defs/loop"},
            "bush": {"anyOf": [{"$ref": "#/$defs/bush"}] * 100},
        }
    }
    found = converted(raw, schema, root)
    assert (type(found), found) == (type(value), value)


def test_properties_are_found_wherever_the_schema_has_them() -> None:
    inner = {"properties": {"a": {"type": "string"}}}
    for schema in (
        inner,
        {"$ref": "#/$defs/f", "$defs": {"f": inner}},
        {"allOf": [{"required": ["a"]}, inner]},
        {"properties": {"b": {}}, "oneOf": [{"type": "null"}, {"anyOf": [inner]}]},
    ):
        assert is_declared(schema, "a")
        assert not is_declared(schema, "c")
        assert read_declared(schema, "a").types == STRING
    assert read_declared({"additionalProperties": {"type": "string"}}, "a").types == STRING


@pytest.mark.parametrize("schema", [{}, {"properties": []}, {"allOf": 5}, {"anyOf": [7, None]}, {"$ref": "#/"}])
def test_schemas_that_are_none_declare_nothing(schema: Mapping[str, Any]) -> None:
    assert read_declared(schema, "a") == NOTHING


def test_hostile_schemas_are_followed_no_further_than_a_bound() -> None:
    """Else this would not end."""
    bush = {"anyOf": [{"$ref": "#"}] * 10_000, "allOf": [{"$ref": "#"}] * 10_000}
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"anyOf": [deep]}
    for schema in (bush, deep, {"properties": {"a": deep}}, {"properties": {"a": bush}, **bush}):
        assert read_declared(schema, "a") == NOTHING


def test_text_that_can_be_a_string_only_streams() -> None:
    value = Value(Declared(frozenset({"string", "null", "array"})))
    assert [value.add("wr"), value.add("ite\n"), value.end()] == ['"wr', "ite\\n", '"']


def test_half_a_pair_of_surrogates_is_replaced() -> None:
    assert encode(decode('{"a": "\\ud800"}')) == '{"a": "\ufffd"}'


def test_a_long_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Unterminated"):
        decode('{"a": True, "b": "' + '\\"' * 200_000)


def test_what_is_nested_too_deep_is_no_json() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        encode(deep)
    while deep:  # or freeing it recurses
        deep = deep.pop()
    with pytest.raises(ValueError, match="deep"):
        decode("[True, " + "[" * 100_000)


@pytest.mark.parametrize(("levels", "is_list"), [(MOST_LEVELS - 1, True), (MOST_LEVELS, False)])
def test_a_value_is_nested_no_deeper_than_its_call_can_be_sent_back(levels: int, is_list: bool) -> None:
    raw = "[" * levels + "]" * levels
    assert converted(raw, {"type": "array"}) == (json.loads(raw) if is_list else raw)
    assert is_deeper({"a": json.loads(raw)}) is not is_list


def test_stray_bytes_are_no_characters_of_a_bounded_string() -> None:
    """Grammars count none of them, so that a string with them would be too long."""
    bounded = Value(read_declared({"properties": {"a": {"type": "string", "maxLength": 2}}}, "a"))
    assert bounded.add("a\ufffdb") + bounded.end() == '"ab"'
    free = Value(read_declared({"properties": {"a": {"type": "string"}}}, "a"))
    assert free.add("a\ufffdb") + free.end() == '"a\ufffdb"'
