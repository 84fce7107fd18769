"""Whether a finished answer is what its schema asked for.

Decides how much work that may be, since schemas are callers': patterns are matched in linear time, nothing is
fetched. In patterns that can't be matched so, and in alternatives that could take too long to try, the grammar that
the answer was written under is believed; all else is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, NoReturn

import jsonschema_rs

MOST_STEPS = 1_000_000
"""Of the validator, each well under a microsecond."""
_MOST_PAIRS = 50_000
_MOST_PATTERN_BYTES = 1 << 20
"""Of what all patterns of a schema become. To compile so much takes 7 ms, in which nothing else goes on."""
_COMBINERS = ("anyOf", "oneOf", "allOf")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_VALUES = ("const", "enum", "default", "examples")
_NOT_INSIDE = ("$ref", "$defs", "definitions", *_VALUES)
_MOST_INDEX_DIGITS = 6


class Conformance:
    """One schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        self._simpler: Any = _rewrite(self._schema, _branching) if _has_reference(self._schema) else self._schema
        self._may_explode = self._simpler != self._schema
        self._pattern_bytes = _MOST_PATTERN_BYTES // max(1, _count_patterns(self._schema))
        self._validator = self._build(self._schema)

    def holds(self, value: Any) -> bool:
        """Whether a value matches, as far as this can be told in bounded time."""
        if self._validator is None:
            return True
        if not self._may_explode or _Steps(self._schema).count(value) <= MOST_STEPS:
            return bool(self._validator.is_valid(value))
        if _Steps(self._simpler).count(value) > MOST_STEPS:
            return True
        simpler = self._build(self._simpler)
        return simpler is None or bool(simpler.is_valid(value))

    def _build(self, schema: dict[str, Any]) -> Any | None:
        """A validator, without the patterns that it can't match; None for no schema of this draft."""
        unmatched = partial(_unmatched, most_bytes=self._pattern_bytes)
        for read in (lambda: schema, lambda: _rewrite(schema, unmatched)):
            with suppress(ValueError, jsonschema_rs.ReferencingError):
                return _validator(read(), self._pattern_bytes)
        return None


def _validator(schema: dict[str, Any], pattern_bytes: int) -> Any:
    return jsonschema_rs.Draft202012Validator(
        schema,
        retriever=_refuse,
        pattern_options=jsonschema_rs.RegexOptions(size_limit=pattern_bytes),
        validate_formats=False,
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"not fetched: {uri[:100]}")


def _rewrite(schema: Any, left_out: Callable[[Mapping[str, Any]], Collection[str]]) -> Any:
    """A schema without some keywords of each of its parts."""
    if isinstance(schema, list):
        return [_rewrite(part, left_out) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    without = left_out(schema)
    kept = {}
    for key, value in schema.items():
        if key in _VALUES:
            kept[key] = value
        elif key in _BY_NAME and isinstance(value, Mapping):
            kept[key] = {name: _rewrite(part, left_out) for name, part in value.items()}
        else:
            kept[key] = _rewrite(value, left_out)
    return {key: value for key, value in kept.items() if key not in without}


def _unmatched(schema: Mapping[str, Any], most_bytes: int) -> Collection[str]:
    """Lookaround, and what is too large."""
    found = ["pattern"] if not _is_matched(schema.get("pattern"), most_bytes) else []
    patterns = schema.get("patternProperties")
    if isinstance(patterns, Mapping) and not all(_is_matched(pattern, most_bytes) for pattern in patterns):
        found += ["patternProperties", "additionalProperties", "unevaluatedProperties"]
    return found


def _is_matched(pattern: Any, most_bytes: int) -> bool:
    if pattern is None:
        return True
    try:
        _validator({"pattern": pattern}, most_bytes)
    except ValueError:
        return False
    return True


def _branching(schema: Mapping[str, Any]) -> Collection[str]:
    """Where a value is looked at along several references: what these share is tried once for each."""
    combined = {key: schema[key] for key in _COMBINERS if isinstance(schema.get(key), list)}
    paths = sum(map(_has_reference, chain.from_iterable(combined.values()))) + ("$ref" in schema)
    if not paths:
        return ()
    inside = {key: value for key, value in schema.items() if key not in combined and key not in _NOT_INSIDE}
    if paths + _has_reference(inside) <= 1:
        return ()
    return ["$ref", *(key for key, options in combined.items() if _has_reference(options))]


def _has_reference(schema: Any) -> bool:
    return any("$ref" in node for node in _walk(schema))


def _count_patterns(schema: Any) -> int:
    """Of a part, and of names."""
    nodes = list(_walk(schema))
    names = (node.get("patternProperties") for node in nodes)
    return sum("pattern" in node for node in nodes) + sum(len(name) for name in names if isinstance(name, Mapping))


def _walk(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every object of a schema, whatever it stands for."""
    nodes: list[Any] = [schema]
    for node in nodes:  # grows as it goes
        if isinstance(node, Mapping):
            yield node
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) <= _MOST_INDEX_DIGITS


class _Steps:
    """How many pairs of a schema and a value a validator looks at that remembers none: at most that many."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[int, int], int] = {}

    def count(self, value: Any) -> int:
        """For the whole."""
        try:
            return self._count(self._root, value)
        except RecursionError:
            return MOST_STEPS + 1

    def _count(self, schema: Any, value: Any) -> int:
        if not isinstance(schema, Mapping):
            return 1
        key = (id(schema), id(value))
        if key not in self._known:
            if len(self._known) > _MOST_PAIRS:
                return MOST_STEPS + 1
            self._known[key] = 1
            self._known[key] = 1 + sum(self._count(*pair) for pair in self._pairs(schema, value))
        return self._known[key]

    def _pairs(self, schema: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
        if "$ref" in schema:
            yield self._target(schema["$ref"]), value
        for key in _COMBINERS:
            options = schema.get(key)
            for option in options if isinstance(options, list) else ():
                yield option, value
        for key in ("not", "if", "then", "else"):
            yield schema.get(key), value
        if isinstance(value, dict):
            properties = schema.get("properties")
            known = properties if isinstance(properties, Mapping) else {}
            for name, inner in value.items():
                yield known.get(name, schema.get("additionalProperties")), inner
        elif isinstance(value, list):
            first = schema.get("prefixItems")
            known_items = first if isinstance(first, list) else []
            for index, inner in enumerate(value):
                yield known_items[index] if index < len(known_items) else schema.get("items"), inner

    def _target(self, ref: Any) -> Any:
        found: Any = self._root
        for step in ref.split("/")[1:] if isinstance(ref, str) else ():
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and _is_index(step) and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, Mapping):
                found = found.get(step)
            else:
                return None
        return found
