"""What the grammars accept and refuse, asked of xgrammar itself, and what a model without sense writes under them.

The tokenizer is made up: every byte, pieces of JSON and of markup that cross the borders of rules, and the markers as
single tokens, as Qwen has them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.engine.dialect import Dialect, Splitter
from node.engine.ebnf.rules import Rules
from node.engine.grammar import build_structural_tag
from node.engine.port import Guide, Piece, Schema, Text, Thinking, Tool, ToolArguments, ToolEnd, ToolStart
from shared.errors import UNSUPPORTED_PARAMETER, ApiError

xgrammar: Any = importlib.import_module("xgrammar")  # typed for nobody

HERMES = Dialect(tools="hermes")
QWEN = Dialect(("<think>", "</think>"), "qwen3_coder")
THINKING_HERMES = Dialect(("<think>", "</think>"), "hermes")
PLAIN = Dialect()
PIECES = (
    '"}', '",', '", "', '": ', '": "', "{}", "[]", '{"', '"]', "}}", "</", "<p", "arameter", ">\n", "\n</",
    "\\n", "\\u00",
    "12", "00", " a", "the", "ing", "e", "function", "é", "😀", "true", "null", "a@b", ".com", "://", "\n\n",
    "<think>", "</think>", "<tool_call>", "</tool_call>",
)  # fmt: skip
END = 256 + len(PIECES)
VOCABULARY = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in PIECES] + [b"<end>"]
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["celsius", "fahrenheit", 'odd " \\ <b>']},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}


def tool(name: str, schema: Mapping[str, Any], *, strict: bool = True) -> Tool:
    """A function."""
    return Tool(name, Schema(schema, f"tools.{name}.input_schema"), strict)


def answer(schema: Any) -> Guide:
    """A guide that asks for JSON."""
    return Guide(answer=Schema(schema, "output_config.format.schema"))


@cache
def compiler() -> Any:
    """With the made-up tokenizer."""
    tokens = xgrammar.TokenizerInfo(VOCABULARY, stop_token_ids=[END])
    return xgrammar.GrammarCompiler(tokens, max_threads=1)


def compiled(guide: Guide, dialect: Dialect, *, thinks: bool = False) -> Any:
    """The grammar of a guide."""
    tag = build_structural_tag(guide, dialect, thinks=thinks)
    assert tag is not None
    return compiler().compile_structural_tag(json.dumps(tag))


def accepts(grammar: Any, text: str) -> bool:
    """Whether an answer may be this, as a whole."""
    matcher = xgrammar.GrammarMatcher(grammar)
    return bool(matcher.accept_string(text.encode()) and matcher.is_completed())


def babble(grammar: Any, seed: int, *, patience: int = 400) -> str | None:
    """What a model writes that picks any allowed token, with a liking for ends; None if it comes to none."""
    chance = random.Random(seed)
    matcher, mask = xgrammar.GrammarMatcher(grammar), xgrammar.allocate_token_bitmask(1, END + 1)
    bits, written = mask.numpy().view("uint8")[0], b""
    for step in range(patience):
        matcher.fill_next_token_bitmask(mask)
        allowed = [token for token in range(END + 1) if bits[token // 8] >> token % 8 & 1]
        assert allowed, f"stuck after {written!r}"
        closers = [token for token in allowed if VOCABULARY[token][:1] in b'"}]<\n' or token == END]
        token = chance.choice(closers if closers and step > chance.randrange(patience // 2) else allowed)
        if token == END:
            with contextlib.suppress(UnicodeDecodeError):  # free text may be any bytes
                return written.decode()
            return None
        assert matcher.accept_token(token)
        written += VOCABULARY[token]
    return None


def pieces_of(text: str, dialect: Dialect, tools: Sequence[Tool], *, thinks: bool = False) -> list[Piece]:
    """What the node reads in an answer."""
    splitter = Splitter(
        dialect=dialect, begins_thinking=thinks, tools=tools, one_call=False, new_call_id=lambda: "chatcmpl-tool-0"
    )
    return [*splitter.feed(text), *splitter.finish("stop")]


def inputs_of(pieces: Sequence[Piece]) -> list[tuple[str, Any]]:
    """The calls among the pieces."""
    calls: list[tuple[str, str]] = []
    for piece in pieces:
        if isinstance(piece, ToolStart):
            calls.append((piece.name, ""))
        elif isinstance(piece, ToolArguments):
            calls[-1] = (calls[-1][0], calls[-1][1] + piece.json)
    assert sum(isinstance(piece, ToolEnd) for piece in pieces) == len(calls)
    return [(name, json.loads(arguments)) for name, arguments in calls]


def hermes(name: str, arguments: Any) -> str:
    """A call."""
    return (
        f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}\n</tool_call>'
    )


def qwen(name: str, **arguments: str) -> str:
    """A call."""
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def test_there_is_no_grammar_where_nothing_is_promised() -> None:
    assert build_structural_tag(Guide(), HERMES, thinks=False) is None
    loose = Guide((tool("get_weather", WEATHER, strict=False),), one_call=True)
    assert build_structural_tag(loose, QWEN, thinks=True) is None


GOOD = {"city": "Paris", "unit": "celsius"}


def test_a_forced_call_is_the_whole_answer_and_there_is_one() -> None:
    grammar = compiled(Guide((tool("get_weather", WEATHER),), must_call=True, one_call=True), HERMES)
    call = hermes("get_weather", GOOD)
    assert accepts(grammar, call)
    for wrong in ("", "hi " + call, call + "\n" + call, call[:-1], hermes("get_weather", {"city": "Paris"})):
        assert not accepts(grammar, wrong)


def test_forced_calls_may_be_several_of_different_tools_and_none_is_loose() -> None:
    guide = Guide((tool("get_weather", WEATHER), tool("x", {"type": "object"}, strict=False)), must_call=True)
    grammar = compiled(guide, HERMES)
    good, other = hermes("get_weather", GOOD), hermes("x", {"any": [1, {"thing": None}]})
    assert accepts(grammar, good + "\n" + other + "\n" + good)
    for wrong in (hermes("y", {}), hermes("get_weather", {}), hermes("x", 5), good + "\n"):
        assert not accepts(grammar, wrong)


def test_a_strict_tool_leaves_text_free_and_binds_the_calls_in_it() -> None:
    guide = Guide((tool("get_weather", WEATHER), tool("x", {"required": ["a"]}, strict=False)))
    grammar = compiled(guide, HERMES)
    good, loose = hermes("get_weather", GOOD), hermes("x", {})
    for right in ("", "a < b and <tool", good, "first " + good + "\nthen\n" + loose + " done"):
        assert accepts(grammar, right)
    for wrong in (hermes("get_weather", {"city": ""}), "well " + hermes("nope", {}), "<tool_call> for you"):
        assert not accepts(grammar, wrong)


def test_with_one_call_an_answer_ends_after_its_strict_call() -> None:
    grammar = compiled(Guide((tool("get_weather", WEATHER),), one_call=True), HERMES)
    assert accepts(grammar, "text " + hermes("get_weather", GOOD))
    assert not accepts(grammar, hermes("get_weather", GOOD) + " more")


def test_a_strict_tool_of_qwen_is_called_by_its_tags_only() -> None:
    guide = Guide((tool("get_weather", WEATHER), tool("x", {}, strict=False)))
    grammar = compiled(guide, QWEN)
    assert accepts(
        grammar, "hm\n" + qwen("get_weather", city="Paris", unit="celsius") + "\n" + qwen("x", any="thing")
    )
    bare = "<function=get_weather>\n<parameter=city>\n</parameter>\n</function>"
    assert not accepts(grammar, bare)


def test_an_answer_with_a_schema_and_tools_is_either() -> None:
    guide = Guide((tool("x", {}, strict=False),), answer=Schema({"properties": {"a": {"type": "integer"}}}, "o"))
    grammar = compiled(guide, HERMES)
    assert accepts(grammar, '{"a": 1}')
    assert accepts(grammar, hermes("x", {"b": 2}))
    for wrong in ("text", "", '{"a": 1}' + hermes("x", {}), '{"a": "1"}'):
        assert not accepts(grammar, wrong)


@pytest.mark.parametrize("dialect", [QWEN, THINKING_HERMES])
def test_thinking_comes_first_and_an_answer_cannot_end_in_it(dialect: Dialect) -> None:
    grammar = compiled(Guide((tool("get_weather", WEATHER),), must_call=True), dialect, thinks=True)
    call = hermes("get_weather", GOOD) if dialect.tools == "hermes" else qwen("get_weather", city="P", unit="celsius")
    for right in ("so\n</think>\n\n" + call, "</think>" + call, "a < b\n\n</think>\n" + call):
        assert accepts(grammar, right)
    for wrong in ("", "so", "so</think>", call, "so <tool_call> </think>" + call, "so</think>\n\n\n" + call):
        assert not accepts(grammar, wrong)


def test_thinking_comes_before_text_that_may_call() -> None:
    grammar = compiled(Guide((tool("get_weather", WEATHER),)), QWEN, thinks=True)
    assert accepts(grammar, "so\n</think>\n\nHello.")
    assert not accepts(grammar, "so")


def test_the_token_of_a_marker_counts_as_its_text() -> None:
    grammar = compiled(Guide((tool("get_weather", WEATHER),), must_call=True), QWEN, thinks=True)
    matcher, mask = xgrammar.GrammarMatcher(grammar), xgrammar.allocate_token_bitmask(1, END + 1)
    token = {piece: 256 + index for index, piece in enumerate(PIECES)}
    bits = mask.numpy().view("uint8")[0]

    def allowed(piece: str) -> bool:
        matcher.fill_next_token_bitmask(mask)
        return bool(bits[token[piece] // 8] >> token[piece] % 8 & 1)

    assert allowed("</think>")
    assert not allowed("<tool_call>")
    assert matcher.accept_token(token["the"])
    assert matcher.accept_token(token["</think>"])
    assert matcher.accept_token(token["\n\n"])
    assert allowed("<tool_call>")
    assert not allowed("</think>")
    assert not allowed("the")


def test_white_space_is_bounded() -> None:
    grammar = compiled(answer({"properties": {"a": {"type": "array"}}}), PLAIN)
    assert accepts(grammar, '{\n"a": [ 1,\n2 ]}')
    for wrong in (' {"a": []}', '{  "a": []}', '{"a": [1,  2]}', '{"a": []}\n'):
        assert not accepts(grammar, wrong)


def test_an_enum_of_qwen_is_exact() -> None:
    grammar = compiled(Guide((tool("get_weather", WEATHER),), must_call=True), QWEN)
    assert accepts(grammar, qwen("get_weather", city="Paris", unit='odd " \\ <b>'))
    for unit in ("celsius ", " celsius", "celsius\n", '"celsius"', "kelvin"):
        assert not accepts(grammar, qwen("get_weather", city="Paris", unit=unit))


def test_a_string_of_qwen_is_text_as_it_stands() -> None:
    grammar = compiled(Guide((tool("write", {"properties": {"text": {"type": "string"}}}),), must_call=True), QWEN)
    for text in ("", "\n", "<b>\n</b>\n", '{"a": "b"}\\', "a < b </p", "  x  "):
        call = qwen("write", text=text)
        assert accepts(grammar, call)
        (found,) = inputs_of(pieces_of(call, QWEN, [tool("write", {"properties": {"text": {"type": "string"}}})]))
        assert found == ("write", {"text": text})
    assert not accepts(grammar, qwen("write", text="a</parameter>b"))


def test_a_string_of_qwen_does_not_look_like_the_list_that_it_might_be() -> None:
    schema = {"properties": {"q": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}}}
    grammar = compiled(Guide((tool("find", schema),), must_call=True), QWEN)
    assert accepts(grammar, qwen("find", q="plain"))
    assert accepts(grammar, qwen("find", q='["a", "b"]'))
    assert not accepts(grammar, qwen("find", q="[1, 2]"))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a>b": {}}},
        {"properties": {" a": {}}},
        {"properties": {"a": {"enum": ["</parameter>"]}}},
        {"patternProperties": {"^x": {}}},
        {"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
        {"properties": {"a": {"type": ["integer", "string"], "pattern": "^[0-9]{1,3}$", "minimum": 1000}}},
        {"properties": {"a": {"type": ["integer", "string"], "pattern": "^[0-9a-f]+$", "minimum": 1000}}},
        {"properties": {"a": {"anyOf": [{"enum": ["7"]}, {"pattern": "^x"}, {"type": "integer", "minimum": 8}]}}},
    ],
)
def test_what_the_tags_of_qwen_cannot_hold_is_refused_with_the_path_of_its_schema(schema: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        build_structural_tag(Guide((tool("f", schema),), must_call=True), QWEN, thinks=False)
    assert caught.value.condition == UNSUPPORTED_PARAMETER
    assert caught.value.param == "tools.f.input_schema"


def test_a_string_of_qwen_does_not_look_like_the_number_that_it_might_be_behind_references() -> None:
    schema = {
        "$defs": {"n": {"anyOf": [{"type": "integer", "minimum": 1000}, {"type": "null"}]}, "s": {"type": "string"}},
        "properties": {"q": {"anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/s"}]}},
    }
    grammar = compiled(Guide((tool("find", schema),), must_call=True), QWEN)
    for right in ("plain", "1000", "null", ""):
        assert accepts(grammar, qwen("find", q=right))
    for wrong in ("7", " 7", "-1000"):
        assert not accepts(grammar, qwen("find", q=wrong))


def test_a_string_of_qwen_does_not_look_like_the_other_boolean() -> None:
    schema = {"properties": {"q": {"anyOf": [{"const": True}, {"type": "string"}]}}}
    grammar = compiled(Guide((tool("find", schema),), must_call=True), QWEN)
    assert accepts(grammar, qwen("find", q="true"))
    assert accepts(grammar, qwen("find", q="plain"))
    assert not accepts(grammar, qwen("find", q="false"))


def doubled(levels: int) -> dict[str, Any]:
    """Definitions of which each is the next one or the next one."""
    definitions = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {**definitions, f"d{levels}": {"type": "string"}}


@pytest.mark.parametrize("dialect", [HERMES, QWEN])
def test_references_that_double_at_every_level_are_written_once(dialect: Dialect) -> None:
    schema = {"$defs": doubled(40), "properties": {"x": {"$ref": "#/$defs/d0"}}, "required": ["x"]}
    tag = build_structural_tag(Guide((tool("f", schema),), must_call=True), dialect, thinks=False)
    assert len(json.dumps(tag)) < 5000


def test_definitions_that_hold_each_other_deeper_than_a_stack_are_written() -> None:
    chain: dict[str, Any] = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(400)}
    schema = {
        "$defs": {**chain, "d400": {"type": "string"}},
        "type": "array",
        "prefixItems": [{"$ref": f"#/$defs/d{i}"} for i in range(400, -1, -1)],
    }
    assert build_structural_tag(answer(schema), PLAIN, thinks=False)


def test_a_long_name_next_to_others_is_written() -> None:
    schema: dict[str, Any] = {"properties": {"a" * 3000: {}}, "additionalProperties": {}}
    assert build_structural_tag(answer(schema), PLAIN, thinks=False)


def test_a_grammar_is_refused_while_it_is_written_too_long() -> None:
    with pytest.raises(ApiError) as caught:
        Rules("s").run("[a]", 10**9, None)
    assert (caught.value.condition, caught.value.param) == (UNSUPPORTED_PARAMETER, "s")
    with pytest.raises(ApiError):
        Rules().add("x" * (1 << 20))


def test_special_tokens_in_names_and_values_are_text() -> None:
    schema = {"properties": {"<|im_end|>": {"const": "<|im_start|>"}}, "required": ["<|im_end|>"]}
    assert accepts(compiled(answer(schema), PLAIN), '{"<|im_end|>": "<|im_start|>"}')


SCHEMAS: list[dict[str, Any]] = [
    WEATHER,
    {"type": "object", "properties": {"s": {"type": "string", "minLength": 2, "maxLength": 4}}, "required": ["s"]},
    {"type": "object", "properties": {"s": {"type": "string", "pattern": r"^[^x]{2,}\d$"}}, "required": ["s"]},
    {"type": "object", "properties": {"s": {"pattern": "ab+"}, "t": {"pattern": "^a[bc]*$", "maxLength": 3}}},
    {"type": "object", "properties": {"n": {"type": "number", "exclusiveMinimum": -1.5, "maximum": 2.25}}},
    {"type": "object", "properties": {"n": {"type": ["integer", "null"], "exclusiveMinimum": 0}}, "required": ["n"]},
    {"type": "object", "properties": {f"p{i}": {"type": "boolean"} for i in range(5)}, "required": ["p1", "p4"]},
    {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "minProperties": 1},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 1},
    {"type": "object", "properties": {"l": {"type": "array", "items": {"enum": [1, "b", None]}, "maxItems": 3}}},
    {"type": "object", "properties": {"l": {"prefixItems": [{"type": "null"}, {"const": "x"}], "minItems": 1}}},
    {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "boolean"}, "minItems": 2}}},
    {
        "type": "object",
        "properties": {"t": {"$ref": "#/$defs/tree"}},
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "l": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
                },
                "required": ["l"],
            }
        },
    },
    {
        "type": "object",
        "properties": {
            "e": {
                "oneOf": [
                    {"properties": {"k": {"const": "a"}, "x": {"type": "integer"}}},
                    {"properties": {"k": {"const": "b"}, "x": {"type": "string"}}},
                ]
            }
        },
        "required": ["e"],
    },
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "additionalProperties": False,
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    {"type": "object", "allOf": [{"properties": {"a": {"minimum": 2}}}, {"properties": {"a": {"maximum": 9}}}]},
    {"type": "object", "properties": {name: {"format": name} for name in ("date", "time", "uri", "email", "uuid")}},
    {"type": "object", "properties": {"any": {}}, "required": ["any", "other"], "additionalProperties": {}},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_whatever_is_written_under_a_schema_is_json_that_matches_it(schema: dict[str, Any]) -> None:
    grammar, validator = (
        compiled(answer(schema), PLAIN),
        jsonschema_rs.Draft202012Validator(schema, validate_formats=True),
    )
    texts = [text for seed in range(60) if (text := babble(grammar, seed)) is not None]
    assert texts
    for text in texts:
        assert validator.is_valid(json.loads(text)), text


QWEN_SCHEMAS = [schema for schema in SCHEMAS if "anyOf" not in schema]


@pytest.mark.parametrize("dialect", [HERMES, QWEN])
@pytest.mark.parametrize("schema", QWEN_SCHEMAS)
def test_whatever_is_called_under_a_schema_is_read_as_input_that_matches_it(
    schema: dict[str, Any], dialect: Dialect
) -> None:
    tools = (tool("f", schema), tool("g", {"properties": {"x": {"type": "integer"}}, "required": ["x"]}))
    grammar, validator = compiled(Guide(tools, must_call=True), dialect), jsonschema_rs.Draft202012Validator(schema)
    texts = [text for seed in range(40) if (text := babble(grammar, seed)) is not None]
    assert texts
    for text in texts:
        calls = inputs_of(pieces_of(text, dialect, tools))
        assert calls
        for name, value in calls:
            assert validator.is_valid(value) if name == "f" else isinstance(value["x"], int), text


def test_whatever_is_thought_before_a_call_ends_in_one() -> None:
    tools = (tool("f", WEATHER),)
    grammar = compiled(Guide(tools, must_call=True, one_call=True), QWEN, thinks=True)
    for seed in range(40):
        text = babble(grammar, seed, patience=800)
        if text is not None:
            pieces = pieces_of(text, QWEN, tools, thinks=True)
            assert len(inputs_of(pieces)) == 1
            assert not any(isinstance(piece, Text) for piece in pieces)
            assert all("<tool_call>" not in piece.text for piece in pieces if isinstance(piece, Thinking))


VALUES: dict[str, Any] = {
    "texts": (st.text(min_size=2, max_size=9), {"type": "string", "minLength": 2, "maxLength": 60}),
    "any text": (st.text(), {"type": "string"}),
    "whole numbers": (st.integers(-70, 900), {"type": "integer", "minimum": -70, "maximum": 900}),
    "enums": (st.sampled_from(["a", 'b"', "c\n", 1, None, True]), {"enum": ["a", 'b"', "c\n", 1, None, True]}),
    "lists": (st.lists(st.booleans(), max_size=4), {"type": "array", "items": {"type": "boolean"}, "maxItems": 4}),
    "anything": (st.recursive(st.none() | st.text() | st.booleans(), lambda inner: st.lists(inner)), {}),
}


@pytest.mark.parametrize("name", sorted(VALUES))
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_that_match_may_be_written(name: str, data: st.DataObject) -> None:
    values, schema = VALUES[name]
    value = data.draw(values)
    grammar = compiled(answer({"properties": {"v": schema}, "required": ["v"]}), PLAIN)
    assert accepts(grammar, json.dumps({"v": value}, ensure_ascii=False))


@given(value=st.integers() | st.floats(allow_nan=False, allow_infinity=False, width=16) | st.text(max_size=6))
@settings(max_examples=200, deadline=None)
def test_values_that_do_not_match_may_not_be_written(value: float | str) -> None:
    schema = {"type": "integer", "minimum": -3, "exclusiveMaximum": 118}
    if accepts(compiled(answer(schema), PLAIN), json.dumps(value)):
        assert jsonschema_rs.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    "text", ['"\t\t"', '"\x01a"', '"a\nb"', '"\\ud800\\ud800"', '"\\x"', '"""', '"\\"', '"ab', "ab"]
)
def test_no_string_has_raw_control_characters_or_half_an_escape(text: str) -> None:
    for schema in (
        {"type": "string", "minLength": 1, "maxLength": 9},
        {"type": "string"},
        {"pattern": "^[^z]+$"},
        {},
    ):
        assert not accepts(compiled(answer(schema), PLAIN), text)


def test_length_counts_characters_and_not_escapes_where_there_must_be_some() -> None:
    grammar = compiled(answer({"type": "string", "minLength": 2}), PLAIN)
    assert accepts(grammar, '"\\n\\u0041"')
    assert accepts(grammar, '"é😀"')
    assert not accepts(grammar, '"\\u0041"')
    assert not accepts(grammar, '"😀"')
