"""What a tool's schema says of one parameter: of which types it is, and which strings it may be.

Decides how far a schema is followed. It is a caller's and may be hostile, so only a few of its nodes are looked at,
when the parameter is written, however they refer to each other; whoever hides a type deeper gets the reading of an
undeclared one. Must not know how values are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_MOST_NODES = 1000
"""Of one parameter's schema; they take some 15 ms on the event loop, so that a caller's may not have many more."""
_MOST_DEPTH = 100
_MOST_INDEX_DIGITS = 6
MOST_MEMBERS = 1000
_TELLING = frozenset({"type", "const", "enum"})
_MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class Declared:
    """What is declared of a value.

    Attributes:
        types: of JSON Schema; none means nothing is declared.
        members: the only strings that it may be; None means any, if it may be a string at all.
        is_bounded: its strings have a longest length.
    """

    types: frozenset[str] = frozenset()
    members: frozenset[str] | None = None
    is_bounded: bool = False

    @property
    def may_be_text(self) -> bool:
        """Whether it may be a string at all."""
        return not self.types or "string" in self.types


def is_declared(schema: Mapping[str, Any], key: str) -> bool:
    """Whether a tool's schema names a parameter."""
    return _property(schema, key) is not None


def read_declared(schema: Mapping[str, Any], key: str) -> Declared:
    """What a tool's schema says of a parameter."""
    found = _property(schema, key)
    if found is None:
        found = schema.get("additionalProperties")
    return _Reader(schema).read(found)


def type_of(value: object) -> str:
    """The JSON Schema type of a JSON value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _property(root: Mapping[str, Any], key: str) -> Any | None:
    """The schema of a property, wherever the root is put together from."""
    nodes: list[Any] = [root]
    seen = {id(root)}
    for node in nodes:  # grows as it goes
        if not isinstance(node, Mapping):
            continue
        properties = node.get("properties")
        if isinstance(properties, Mapping) and properties.get(key) is not None:
            return properties[key]
        further = [
            _target(root, node),
            *_branches(node, "allOf"),
            *_branches(node, "anyOf"),
            *_branches(node, "oneOf"),
        ]
        for inner in further[: max(0, _MOST_NODES - len(nodes))]:
            if id(inner) not in seen:
                seen.add(id(inner))
                nodes.append(inner)
    return None


def _branches(node: Mapping[str, Any], word: str) -> Sequence[Any]:
    branches = node.get(word)
    return branches[:_MOST_NODES] if isinstance(branches, list) else []


def _target(root: Mapping[str, Any], node: Mapping[str, Any]) -> Any | None:
    """What a node's `$ref` points at, if that is in the same schema."""
    ref = node.get("$ref")
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    found: Any = root
    for step in ref.split("/", _MOST_STEPS)[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list) and _is_index(step) and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) <= _MOST_INDEX_DIGITS


class _Reader:
    """Follows one parameter's schema, within its bound of nodes. Each is read once, since many may refer to it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._left, self._depth = root, _MOST_NODES, 0
        self._known: dict[int, Declared] = {}

    def read(self, node: Any) -> Declared:
        """What a node declares, by the first of its keywords that tells."""
        node = self._followed(node)
        if id(node) in self._known:
            return self._known[id(node)]
        if self._left < 0 or self._depth > _MOST_DEPTH or not isinstance(node, Mapping):
            return Declared()
        self._known[id(node)] = Declared()  # for what refers to it from inside
        self._depth += 1
        self._known[id(node)] = self._read(node)
        self._depth -= 1
        return self._known[id(node)]

    def _followed(self, node: Any) -> Any:
        """What references lead to, until something is said beside one."""
        self._left -= 1
        while self._left >= 0 and isinstance(node, Mapping) and "$ref" in node and not node.keys() & _TELLING:
            self._left -= 1
            node = _target(self._root, node)
        return node

    def _read(self, node: Mapping[str, Any]) -> Declared:
        types = _types(node.get("type"))
        members = [node["const"]] if "const" in node else node.get("enum")
        if isinstance(members, list):
            return _enumerated(members, types)
        if types:
            return Declared(types, is_bounded="maxLength" in node)
        for word in ("anyOf", "oneOf"):
            if branches := _branches(node, word):
                return _either([self.read(branch) for branch in branches])
        known = (self.read(branch) for branch in _branches(node, "allOf"))
        return next((declared for declared in known if declared.types), Declared())


def _types(named: Any) -> frozenset[str]:
    names = named[: len(_TYPES)] if isinstance(named, list) else [named]
    return frozenset(name for name in names if isinstance(name, str)) & _TYPES


def _enumerated(members: list[Any], types: frozenset[str]) -> Declared:
    few = members[:MOST_MEMBERS]
    types = types or frozenset(map(type_of, members[:_MOST_NODES]))
    if "string" not in types or len(few) < len(members):
        return Declared(types)
    return Declared(types, frozenset(member for member in few if isinstance(member, str)))


def _either(branches: list[Declared]) -> Declared:
    if not all(branch.types for branch in branches):
        return Declared()
    members: frozenset[str] | None = frozenset()
    for branch in branches:
        if "string" in branch.types:
            members = None if members is None or branch.members is None else members | branch.members
    types = frozenset[str]().union(*(branch.types for branch in branches))
    return Declared(types, members or None, is_bounded=any(branch.is_bounded for branch in branches))
