"""The schemas of a request: how large they may be, and whether a model can be kept to them.

Decides the seed's bounds. Must not know engines, nor what the schemas are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from node.schema.form import Anything, Object
from node.schema.plan import plan_schema
from node.schema.refusal import invalid

MOST_BYTES = 65_536
MOST_LEVELS = 32


def check_schema(schema: Mapping[str, Any], path: str) -> None:
    """Whether a schema is within bounds.

    Raises:
        ApiError: `INVALID_REQUEST`; `param` is the path of the schema.
    """
    level: list[Any] = [schema]
    for _ in range(MOST_LEVELS):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise invalid(path, f"a schema has at most {MOST_LEVELS} levels")
    try:
        size = len(orjson.dumps(schema))
    except orjson.JSONEncodeError:
        raise invalid(path, "a schema must be JSON") from None
    if size > MOST_BYTES:
        raise invalid(path, f"a schema has at most {MOST_BYTES // 1024} KiB, and this one has {size} bytes")


def require_enforceable(schema: Mapping[str, Any], path: str, *, is_input: bool) -> None:
    """Whether a model can be kept to a schema.

    Args:
        is_input: it is a tool's, so that what matches is an object.

    Raises:
        ApiError: `UNSUPPORTED_PARAMETER` for what can't be enforced, `INVALID_REQUEST` for what is no schema or
            matches nothing; `param` is the path of the keyword.
    """
    plan = plan_schema(schema, path)
    if is_input and not isinstance(plan.resolve(plan.root), Object | Anything):
        raise invalid(f"{path}.type", "the input of a tool is an object")


def _inside(value: Any) -> list[Any]:
    """What stands one level deeper; scalars are no level."""
    if isinstance(value, dict):
        return [inner for inner in value.values() if isinstance(inner, dict | list)]
    return [inner for inner in value if isinstance(inner, dict | list)] if isinstance(value, list) else []
