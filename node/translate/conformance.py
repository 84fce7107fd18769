"""Whether a finished answer is what its schema asked for.

Decides how much work that may be, since schemas are callers': patterns are matched in linear time, nothing is
fetched, and where trying all alternatives could take too long, the grammar that the answer was written under is
believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import jsonschema_rs

MOST_STEPS = 1_000_000
"""Of the validator, each well under a microsecond."""
_MOST_PAIRS = 50_000
_MOST_PATTERN_BYTES = 1 << 20
_COMBINERS = ("anyOf", "oneOf", "allOf")


class Conformance:
    """One schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        self._may_explode = any(_branches(self._schema))
        self._validator: Any = None
        # Lookaround, or no schema of this draft: nothing that a grammar was made of as it stands.
        with suppress(ValueError, jsonschema_rs.ReferencingError):
            self._validator = jsonschema_rs.Draft202012Validator(
                self._schema,
                retriever=_refuse,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=_MOST_PATTERN_BYTES),
                validate_formats=False,
            )

    def holds(self, value: Any) -> bool:
        """Whether a value matches, as far as this can be told in bounded time."""
        if self._validator is None:
            return True
        if self._may_explode and _Steps(self._schema).count(value) > MOST_STEPS:
            return True
        return bool(self._validator.is_valid(value))


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"not fetched: {uri[:100]}")


def _branches(schema: Any) -> Iterator[bool]:
    """True for every list of alternatives of which two hold references: what these share is tried once for each."""
    nodes: list[Any] = [schema]
    for node in nodes:  # grows as it goes
        if isinstance(node, Mapping):
            nodes += node.values()
            for key in _COMBINERS:
                options = node.get(key)
                if isinstance(options, list) and sum(map(_has_reference, options)) > 1:
                    yield True
        elif isinstance(node, list):
            nodes += node


def _has_reference(schema: Any) -> bool:
    nodes: list[Any] = [schema]
    for node in nodes:  # grows as it goes
        if isinstance(node, Mapping):
            if "$ref" in node:
                return True
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return False


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
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, Mapping):
                found = found.get(step)
            else:
                return None
        return found
