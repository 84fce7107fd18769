"""A guide as text, for the process that makes grammars. Decides no more than the form."""

from __future__ import annotations

from dataclasses import asdict

import orjson

from node.engine.dialect.spec import Dialect
from node.engine.port import Guide, Schema, Tool


def write_guide(guide: Guide, dialect: Dialect, *, thinks: bool) -> str:
    """What a grammar is made of, and nothing else: equal texts have equal grammars."""
    free = Schema({}, "")
    # A caller may show a model megabytes of tools of whose inputs nothing is promised.
    tools = [Tool(tool.name, tool.schema if guide.binds(tool) else free, tool.is_strict) for tool in guide.tools]
    asked = {"tools": tools, "must_call": guide.must_call, "one_call": guide.one_call, "answer": guide.answer}
    return orjson.dumps({"guide": asked, "dialect": asdict(dialect), "thinks": thinks}).decode()


def read_guide(text: str) -> tuple[Guide, Dialect, bool]:
    """The guide, the dialect, and whether the answer begins with thinking."""
    order = orjson.loads(text)
    guide, dialect = order["guide"], order["dialect"]
    tools = [Tool(tool["name"], Schema(**tool["schema"]), tool["is_strict"]) for tool in guide["tools"]]
    answer = None if guide["answer"] is None else Schema(**guide["answer"])
    thinking = None if dialect["thinking"] is None else tuple(dialect["thinking"])
    return (
        Guide(tools, guide["must_call"], guide["one_call"], answer),
        Dialect(thinking, dialect["tools"]),
        order["thinks"],
    )
