"""Whether an answer is what its schema asked for, in bounded time."""

from __future__ import annotations

from typing import Any

import pytest

from node.schema.conformance import Conformance


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object", "required": ["a"]}, {"a": 1}, {}),
        ({"$defs": {"x": {"type": "integer"}}, "items": {"$ref": "#/$defs/x"}}, [1, 2], ["1"]),
        ({"prefixItems": [{"const": 1}], "items": False}, [1], [1, 2]),
        ({"type": "string", "pattern": "^a+$"}, "aa", "b"),
        ({"type": "integer"}, 3.0, 3.5),
        ({"enum": [1, "1", None]}, None, True),
    ],
)
def test_values_hold_by_draft_2020_12(schema: dict[str, Any], good: object, bad: object) -> None:
    assert Conformance(schema).holds(good)
    assert not Conformance(schema).holds(bad)


def test_a_format_is_an_annotation() -> None:
    assert Conformance({"type": "string", "format": "email"}).holds("nobody")


@pytest.mark.parametrize("ref", ["http://127.0.0.1:9/x", "file:///etc/passwd", "https://json-schema.org/nothing"])
def test_nothing_is_fetched_and_what_is_not_known_is_believed(ref: str) -> None:
    assert Conformance({"$ref": ref}).holds("anything")


def test_a_pattern_that_makes_others_backtrack_takes_linear_time() -> None:
    assert not Conformance({"type": "string", "pattern": "^(a+)+$"}).holds("a" * 100_000 + "!")


@pytest.mark.parametrize("pattern", ["^(?!a)b$", "^.{5000}$", "^((a{100}){100}){100}$", "["])
def test_a_pattern_that_cannot_be_matched_in_bounds_is_believed(pattern: str) -> None:
    assert Conformance({"type": "string", "pattern": pattern}).holds("b")


def test_alternatives_that_double_at_every_level_are_not_tried_out() -> None:
    names = [f"d{level}" for level in range(60)]
    definitions: dict[str, Any] = {
        name: {"anyOf": [{"properties": {"v": {"$ref": f"#/$defs/{inner}"}}, "type": "object"} for _ in range(2)]}
        for name, inner in zip(names, [*names[1:], "end"], strict=True)
    }
    check = Conformance({"$defs": {**definitions, "end": {"const": 1}}, "$ref": "#/$defs/d0"})
    value: Any = 2
    for _ in names:
        value = {"v": value}
    assert check.holds(value)  # it doesn't match, but nobody would live to see that
    assert not check.holds({"v": {"v": 5}})


def test_recursive_schemas_are_checked() -> None:
    check = Conformance(
        {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
            "required": ["next"],
        }
    )
    value: Any = {"next": None}
    for _ in range(100):
        value = {"next": value}
    assert check.holds(value)
    value["next"]["next"]["next"] = 5
    assert not check.holds(value)


def test_a_pattern_that_cannot_be_matched_is_all_that_is_believed() -> None:
    check = Conformance(
        {
            "type": "object",
            "properties": {"a": {"type": "string", "pattern": "^(?!x)"}, "pattern": {"type": "integer"}},
            "required": ["a"],
            "enum": [{"a": "y", "pattern": 1}, {"a": "x"}],
        }
    )
    assert check.holds({"a": "x"})
    for wrong in ({"a": 1}, {}, {"a": "y", "pattern": "1"}, {"a": "z"}):
        assert not check.holds(wrong)


def test_names_by_a_pattern_that_cannot_be_matched_are_believed() -> None:
    check = Conformance(
        {"patternProperties": {"^(?!x)": {"type": "string"}}, "additionalProperties": False, "maxProperties": 1}
    )
    assert check.holds({"a": 1})
    assert not check.holds({"a": 1, "b": 2})


@pytest.mark.parametrize("alternative", ["anyOf", "beside", "two keywords"])
def test_beside_alternatives_that_double_at_every_level_all_else_is_checked(alternative: str) -> None:
    def level(index: int) -> dict[str, Any]:
        inner = {"$ref": f"#/$defs/d{index + 1}"}
        step = {"properties": {"v": inner}}
        if alternative == "anyOf":
            return {"anyOf": [step, step]}
        return {**step, "allOf": [step]} if alternative == "two keywords" else {**step, "$ref": f"#/$defs/e{index}"}

    definitions = {f"d{index}": level(index) for index in range(60)}
    definitions |= {f"e{index}": {"properties": {"v": {"$ref": f"#/$defs/d{index + 1}"}}} for index in range(60)}
    schema = {
        "$defs": {**definitions, "d60": {"const": 1}},
        "properties": {"x": {"$ref": "#/$defs/d0"}, "y": {"type": "integer"}},
        "required": ["y"],
    }
    value: Any = 1
    for _ in range(60):
        value = {"v": value}
    check = Conformance(schema)
    assert check.holds({"x": value, "y": 1})
    assert not check.holds({"x": value, "y": "1"})
    assert not check.holds({"x": value})


def test_a_reference_by_a_number_of_many_digits_is_no_error() -> None:
    check = Conformance({"anyOf": [{"$ref": "#/anyOf/" + "0" * 5000}, {"$ref": "#/anyOf/2"}, {}]})
    assert check.holds(1) in (True, False)


def test_patterns_share_the_room_of_one_and_what_does_not_fit_is_believed() -> None:
    one = {"type": "string", "pattern": "^[a-z]{1000}$"}
    assert not Conformance({"type": "object", "properties": {"p0": one}}).holds({"p0": "b"})
    many = Conformance({"type": "object", "properties": {f"p{number}": one for number in range(200)}})
    assert many.holds({"p0": "b"})
    assert not many.holds({"p0": 1})
    light = {"type": "string", "pattern": "^a+$"}
    assert not Conformance({"type": "object", "properties": {f"p{n}": light for n in range(200)}}).holds({"p0": "b"})
