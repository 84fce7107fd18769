"""A fault that pydantic found to the refusal that a caller reads.

Decides the code and the words of each: agents act on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import ErrorDetails

from node.wire.request import TAG_MARK
from shared.errors import IMAGE_KIND, INVALID_REQUEST, LONGEST_PARAM, UNSUPPORTED_PARAMETER, ApiError, safe_text

UNREADABLE = "Could not process image"
"""Agents look for these words and go on without the picture; on others, every later turn would be refused as well."""
_WORDS = {  # where pydantic's speak of Python
    "missing": "Field required",
    "model_type": "Input should be an object",
    "model_attributes_type": "Input should be an object",
    "dict_type": "Input should be an object",
    "content_type": "Input should be a string or a list of content blocks",
    "too_short": "At least one item is required",
}
_MISPLACED = frozenset(
    {"text", "image", "tool_result", "tool_use", "thinking", "redacted_thinking", "tool_reference"}
)
"""Blocks that are taken, each in its own place."""
_LONGEST_NAME = 100


def join_path(steps: Sequence[str | int]) -> str:
    """The dotted path of a field, list indexes included."""
    return safe_text(".".join(map(str, steps)), LONGEST_PARAM)


def invalid(path: str, words: str) -> ApiError:
    """A field that is there and wrong."""
    return ApiError(INVALID_REQUEST, f"{path}: {words}", param=path)


def not_permitted(path: str, details: dict[str, Any] | None = None) -> ApiError:
    """Agents look for these words, and send the request again without the field."""
    message = f"{path}: Extra inputs are not permitted"
    return ApiError(UNSUPPORTED_PARAMETER, message, param=path, details=details)


def build_refusal(fault: ErrorDetails) -> ApiError:
    """The refusal of one fault."""
    kind, steps = fault["type"], fault["loc"]
    path = join_path([step for step in steps if not str(step).startswith(TAG_MARK)])
    match kind:
        case "union_tag_not_found" | "union_tag_invalid":
            return _branch(fault, path)
        case "literal_error" if path.endswith((".type", ".keep")) and isinstance(fault["input"], str):
            return _other_type(fault["input"], fault.get("ctx", {}).get("expected", "another value"), path)
        case "literal_error" if path.endswith(".media_type"):
            return ApiError(IMAGE_KIND, f"{path}: {UNREADABLE}: {fault['msg']}", param=path)
        case "string_type" if steps[-1:] == (f"{TAG_MARK}string",):
            return invalid(path, _WORDS["content_type"])
        case _:
            return invalid(path, _WORDS.get(kind, fault["msg"]))


def _branch(fault: ErrorDetails, path: str) -> ApiError:
    """The field by which a union chooses is missing, or names no branch."""
    value = fault["input"]
    if not isinstance(value, dict):
        return invalid(path, _WORDS["model_type"])
    field = "role" if len(fault["loc"]) == 2 and fault["loc"][0] == "messages" else "type"
    path = f"{path}.{field}"
    if value.get(field) is None:
        return invalid(path, _WORDS["missing"])
    if fault["type"] == "union_tag_not_found":
        return invalid(path, "Input should be a valid string")
    expected = _list(fault["ctx"]["expected_tags"].replace(f"'{TAG_MARK}", "'"))
    if field == "role":
        return invalid(path, f"Input should be {expected}")
    return _other_type(value[field], expected, path)


def _other_type(name: str, expected: str, path: str) -> ApiError:
    if path.startswith("tools.") and path.count(".") == 2:
        name = safe_text(name, _LONGEST_NAME)
        words = f"{name} is a tool Anthropic defines or runs; this node takes custom tools only"
        return ApiError(UNSUPPORTED_PARAMETER, f"{words} (name, description, input_schema)", param=path)
    if path.startswith("context_management."):
        return not_permitted(path)  # on other words, Claude Code gives up instead of asking again without
    if name in _MISPLACED and path.startswith(("messages.", "system.")) and not path.endswith(".source.type"):
        return invalid(path, f"a block of this type may not stand here, only {expected}")
    # Agents look for the last words and go on without the file; on others, every later turn would be refused as well.
    pdf = ". The PDF specified was not valid for it" if name == "document" else ""
    return ApiError(UNSUPPORTED_PARAMETER, f"{path}: this node takes {expected} only{pdf}", param=path)


def _list(quoted: str) -> str:
    """`'a', 'b', 'c'` to `'a', 'b' or 'c'`."""
    head, comma, last = quoted.rpartition(", ")
    return f"{head} or {last}" if comma else last
