"""Well-formed answers, read by vLLM's own parsers and by ours: the same names, and the same arguments.

vLLM's see the whole answer at once, ours a few characters at a time.
"""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any

import pytest

from node.catalog.served import ServedModel
from node.engine.dialect import dialect_of
from node.engine.port import Piece, Schema, Text, Tool, ToolArguments, ToolStart
from tests.splitting import split

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "rows": {"type": "array", "items": {"type": "object"}},
        "options": {"type": "object"},
        "kind": {"type": "string", "enum": ["file", "folder"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}
NAMES = ("write", "list_files")
TOOLS = [Tool(name, Schema(SCHEMA, "tools.0.input_schema")) for name in NAMES]

CODE = 'def f(a):\n    """Doc <b>bold</b> & \\n \'x\'."""\n\n    return {"a": [1, 2.5]}  # é 😀\n'
HTML = '<!doctype html>\n<div class="a">\n  <param name="x">\n  a &lt; b\n</div>\n'

Call = tuple[str, dict[str, Any]]
ANSWERS: dict[str, tuple[str, list[Call]]] = {
    "one call": ("", [("write", {"path": "/tmp/a", "text": "x"})]),
    "text before": ("I will look.\n\n", [("list_files", {"path": "."})]),
    "two calls": ("Both.", [("write", {"path": "a", "count": 3}), ("list_files", {"path": "b", "deep": True})]),
    "no arguments": ("", [("list_files", {})]),
    "a file of code": ("", [("write", {"path": "f.py", "text": CODE})]),
    "a file of markup": ("", [("write", {"path": "f.html", "text": HTML})]),
    "every type": (
        "",
        [
            (
                "write",
                {
                    "path": "5",
                    "text": "",
                    "count": -12,
                    "ratio": 2.5,
                    "deep": False,
                    "rows": [{"a": None}, {"b": "x"}],
                    "options": {"a": {"b": [True, "}"]}},
                    "kind": "folder",
                    "note": "see null",
                },
            )
        ],
    ),
    "null": ("", [("write", {"note": None})]),
    "no call": ("Nothing to do: a < b.", []),
}


def as_hermes(call: Call) -> str:
    name, arguments = call
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def as_qwen_xml(call: Call) -> str:
    """As the template of Qwen3-Coder writes the calls of earlier turns."""
    name, arguments = call
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def calls_in(pieces: list[Piece]) -> list[Call]:
    return [
        (start.name, json.loads(arguments.json))
        for start, arguments in itertools.pairwise(pieces)
        if isinstance(start, ToolStart) and isinstance(arguments, ToolArguments)
    ]


def vllm_reads(parser: str, model: ServedModel, answer: str) -> tuple[str, list[Call]]:
    """The text and the calls that vLLM finds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates what vLLM and torch itself still use, at import
        from transformers import AutoTokenizer
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.parser import ParserManager

        tokenizer = AutoTokenizer.from_pretrained(model.source)
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    request = ChatCompletionRequest(messages=[], tools=tools, tool_choice="auto")
    kind = ParserManager.get_tool_parser(parser, enable_auto_tools=True)
    found = kind(tokenizer, request.tools).extract_tool_calls(answer, request)
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in found.tool_calls]
    return found.content or "", calls


@pytest.mark.parametrize("parser", ["hermes", "qwen3_coder"])
@pytest.mark.parametrize("name", ANSWERS)
def test_both_read_the_same_calls(parser: str, name: str, smollm2: ServedModel) -> None:
    text, calls = ANSWERS[name]
    write = as_hermes if parser == "hermes" else as_qwen_xml
    answer = text + "\n".join(map(write, calls))
    pieces = split(dialect_of(reasoning_parser=None, tool_parser=parser), answer, TOOLS, size=3)
    ours = ("".join(piece.text for piece in pieces if isinstance(piece, Text)), calls_in(pieces))
    theirs = vllm_reads(parser, smollm2, answer)
    assert ours[1] == theirs[1] == calls
    assert ours[0] == theirs[0].rstrip("\n")
