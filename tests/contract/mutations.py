"""Requests that were damaged somewhere, and what their refusals may say about it.

Decides how bodies are damaged, and which `param` is honest: a path that the body has, or a field that is missing from
an object that it has. Shares no code with what makes paths.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.contract.bodies import CITY, TIME, USER, WEATHER, call, image, result
from tests.contract.recordings import load_recordings

NAMES = (
    *("type", "role", "content", "text", "id", "name", "input", "tool_use_id", "is_error", "source", "media_type"),
    *("data", "url", "thinking", "signature", "cache_control", "citations", "input_schema", "strict", "description"),
    *(
        "defer_loading",
        "eager_input_streaming",
        "tool_name",
        "edits",
        "keep",
        "format",
        "schema",
        "effort",
        "display",
    ),
    *("budget_tokens", "disable_parallel_tool_use", "user_id", "ttl", "properties", "required", "display", "$ref"),
    *("model", "messages", "max_tokens", "system", "tools", "tool_choice", "output_config", "stop_sequences"),
    *("stream", "temperature", "top_p", "top_k", "metadata", "service_tier", "context_management", "thread"),
)
KINDS = (
    *("text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking", "tool_reference", "document"),
    *("user", "assistant", "system", "custom", "base64", "url", "file", "auto", "any", "tool", "none", "enabled"),
    *("adaptive", "disabled", "json_schema", "object", "string", "array", "web_search_20250305", "get_weather"),
    *("image/png", "clear_thinking_20251015", "all", "ephemeral", "high", "#/$defs/a", "#", "^(a|b)*$"),
)

leaves = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 2, 1024, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 0.0, 0.5, 1.5, -0.0, 1e308])
    | st.sampled_from(KINDS)
    | st.text(max_size=6)
)
keys = st.sampled_from(NAMES) | st.text(max_size=6)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


def _within(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas with most of the keywords, now and then with values that they may not have."""
    by_name = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    several, counts = st.lists(inner, max_size=3), st.integers(-1, 5)
    known = {
        "type": st.sampled_from(["object", "string", "array", "integer", "number", ["string", "null"], "x"]),
        "required": st.lists(st.sampled_from("abc"), max_size=3),
        "pattern": st.sampled_from(["^a+$", "(a|b)*", "[", r"\d{3,9}", "^(?=a)b", r"\p{L}+"]),
        "format": st.sampled_from(["date", "email", "uuid", "x"]),
        "$ref": st.sampled_from(["#", "#/$defs/a", "#/properties/a", "x", "#/$defs/zz"]),
        **dict.fromkeys(("properties", "$defs", "patternProperties"), by_name),
        **dict.fromkeys(("items", "additionalProperties", "propertyNames", "not"), inner | st.booleans()),
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), several),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "minimum"), counts),
        **dict.fromkeys(("const", "default", "multipleOf", "exclusiveMaximum", "enum"), leaves),
    }
    return st.fixed_dictionaries({}, optional={name: value | values for name, value in known.items()})


schemas = st.recursive(st.just({}) | st.sampled_from([{"type": "string"}, {"type": "object"}]), _within, max_leaves=6)
places = st.integers(0, 2**16)
"""Which of all values of a body, in a shuffled order: hypothesis prefers small numbers, and no place is better."""
acts = st.one_of(
    *[st.tuples(st.just("alike"), places)] * 5,
    st.tuples(st.just("delete"), st.none()),
    st.tuples(st.just("replace"), values),
    st.tuples(st.just("list"), st.none()),
    st.tuples(st.just("wrap"), keys),
    st.tuples(st.just("rename"), keys),
    st.tuples(st.just("add"), st.tuples(keys, values)),
    st.tuples(st.just("repeat"), st.integers(2, 3)),
)


def rich_bodies() -> list[dict[str, Any]]:
    """Valid bodies that have everything somewhere."""
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, image()]},
        {"role": "system", "content": [{"type": "text", "text": "b", "citations": []}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "c", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "text", "text": "e"},
                *call("t1")["content"],
                *call("t2", "get_time")["content"],
            ],
        },
        {
            "role": "user",
            "content": [
                *result("t2", content=[{"type": "tool_reference", "tool_name": "later"}])["content"],
                *result("t1", content=[{"type": "text", "text": "f"}, image()], is_error=True)["content"],
                {"type": "text", "text": "g"},
            ],
            "output_config": {"effort": "low"},
        },
    ]
    recursive = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/a"}}, "n": {"enum": [1, "x", None]}},
        "required": ["n"],
        "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "additionalProperties": False}},
    }
    later = {"name": "later", "input_schema": recursive, "defer_loading": True, "eager_input_streaming": True}
    tools = [WEATHER | {"strict": True, "type": "custom"}, TIME, later]
    everything = {
        "messages": conversation,
        "system": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}],
        "tools": tools,
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
        "stop_sequences": ["zz", "yy"],
        "temperature": 0.5,
        "top_p": 0,
        "top_k": 5,
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "cache_control": {"type": "ephemeral"},
        "max_tokens": 2000,
    }
    formatted = {"output_config": {"effort": "high", "format": {"type": "json_schema", "schema": CITY}}}
    small: dict[str, Any] = {"messages": [USER], "max_tokens": 9}
    return [
        everything | {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "stream": True},
        everything | {"tool_choice": {"type": "any", "disable_parallel_tool_use": False}},
        everything | {"tool_choice": {"type": "tool", "name": "later"}},
        everything | {"tool_choice": {"type": "none"}} | formatted,
        small | formatted | {"stream": True},
        small | {"messages": [USER, {"role": "assistant", "content": [{"type": "text", "text": "So"}]}]},
    ]


def recorded_bodies(model: str) -> list[dict[str, Any]]:
    """What clients sent, one of each size and kind."""
    bodies = [each.body_for(model) for each in load_recordings() if each.body is not None]
    whole = [body for body in bodies if "messages" in body and not {"thread", "safeguards"} & set(body)]
    unique = {json.dumps(_shape(body), sort_keys=True): body for body in whole}
    return list(unique.values())


def _shape(value: Any) -> Any:
    """A body without its texts and schemas, to tell kinds apart."""
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items() if name not in ("input_schema", "schema")}
    if isinstance(value, list):
        return [_shape(inner) for inner in value[:6]]
    return type(value).__name__


def mutate(body: dict[str, Any], changes: list[tuple[int, tuple[str, Any]]]) -> dict[str, Any]:
    """A copy, changed in each of the places."""
    changed = copy.deepcopy(body)
    for place, (act, argument) in changes:
        if not changed:
            break
        container, key = _pick(list(_walk(changed)), place)
        if act == "alike":  # a value of the same type from elsewhere in the body, which leads to the later checks
            kind = type(container[key])
            source, name = _pick([(c, k) for c, k in _walk(changed) if type(c[k]) is kind], argument)
            act, argument = "replace", copy.deepcopy(source[name])
        _change(container, key, act, argument)
    return changed


def _walk(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value inside, as its container and its key."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _walk(value[key])


def _pick(found: list[tuple[Any, Any]], place: int) -> tuple[Any, Any]:
    return found[place * 2_654_435_761 % 2**32 % len(found)]


def _change(container: Any, key: Any, act: str, argument: Any) -> None:
    value = container[key]
    match act:
        case "delete":
            del container[key]
        case "list":
            container[key] = [value]
        case "wrap":
            container[key] = {argument: value}
        case "rename" if isinstance(container, dict):
            container[argument] = container.pop(key)
        case "add" if isinstance(value, dict):
            value[argument[0]] = argument[1]
        case "add" if isinstance(value, list):
            value.append(argument[1])
        case "add":
            container[key] = argument[1]
        case "repeat" if isinstance(container, list):
            container[key:key] = [copy.deepcopy(value) for _ in range(argument)]
        case _:
            container[key] = argument


def is_honest(body: Any, param: str) -> bool:
    """Whether a path leads to a value of the body, or to a field that is missing from an object of it.

    Within a schema only as far as the schema: where keywords of several places are joined, a keyword is told with the
    place of another.
    """
    if isinstance(body, list):
        head, _, rest = param.partition(".")
        if not head.isascii() or not head.isdigit() or int(head) >= len(body):
            return False
        return not rest or is_honest(body[int(head)], rest)
    if not isinstance(body, dict):
        return False
    for name, value in body.items():
        told = told_back(name)
        if name in ("schema", "input_schema") and param.startswith(f"{told}."):
            return True
        if param == told or (param.startswith(f"{told}.") and is_honest(value, param[len(told) + 1 :])):
            return True
        if param.endswith("…") and told.startswith(param[:-1]):  # only so much of a long name is told back
            return True
    return "." not in param and param not in body


def told_back(name: str) -> str:
    """A name without the characters that would move a terminal's text."""
    unsafe = {*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
    return "".join("\ufffd" if ord(character) in unsafe else character for character in name)
