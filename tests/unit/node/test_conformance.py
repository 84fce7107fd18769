"""Whether an answer is what its schema asked for, in bounded time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from node.translate.conformance import Conformance


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
    start = time.monotonic()
    assert Conformance({"$ref": ref}).holds("anything")
    assert time.monotonic() - start < 1


def test_a_pattern_that_makes_others_backtrack_takes_linear_time() -> None:
    start = time.thread_time()
    assert not Conformance({"type": "string", "pattern": "^(a+)+$"}).holds("a" * 100_000 + "!")
    assert time.thread_time() - start < 1


@pytest.mark.parametrize("pattern", ["^(?!a)b$", "^.{5000}$", "^((a{100}){100}){100}$", "["])
def test_a_pattern_that_cannot_be_matched_in_bounds_is_believed(pattern: str) -> None:
    start = time.thread_time()
    Conformance({"type": "string", "pattern": pattern}).holds("b")
    assert time.thread_time() - start < 1


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
    start = time.thread_time()
    assert check.holds(value)  # it doesn't match, but nobody would live to see that
    assert time.thread_time() - start < 1
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
