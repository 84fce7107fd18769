"""What an answer must look like as a structural tag of xgrammar's, which vLLM keeps the model to.

Decides the outline: thinking, text, calls, the answer's JSON, and that no answer ends before what it promised.
Imports neither vLLM nor xgrammar, and must not know requests.

An outline is made of xgrammar's formats; what is inside calls and answers is one grammar of ours, since xgrammar's
own reading of JSON Schema leaves much unsaid (docs/decisions/0006-grammars.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from node.engine.dialect.spec import CALL, CALL_END, FUNCTION, Dialect, ToolFormat
from node.engine.ebnf.parameters import Parameters, Unwritable
from node.engine.ebnf.rules import BLANK, Rules, quote
from node.engine.ebnf.values import Values
from node.engine.port import Guide, Schema, Tool
from node.schema.form import Anything, Plan
from node.schema.plan import plan_schema
from node.schema.refusal import unenforceable

Format = dict[str, Any]

_BEGIN = {"hermes": f'{CALL}\n{{"name": "', "qwen3_coder": f"{CALL}\n{FUNCTION}"}
_END = f"\n{CALL_END}"
_ANY_INPUT = Plan(Anything(is_object=True), {})


def build_structural_tag(guide: Guide, dialect: Dialect, *, thinks: bool) -> Format | None:
    """The tag for vLLM's `StructuredOutputsParams(structural_tag=…)`, or None where there is nothing to enforce.

    That an answer ends with its first call is no matter of grammar by itself: the node stops reading there.

    Args:
        thinks: the prompt ended inside thinking; the tag covers that too, so that the engine is to be told that
            reasoning has ended.

    Raises:
        ApiError: a schema can't be enforced; `param` is its path.
    """
    if not guide.promises():
        return None
    tools = [Tool(tool.name, tool.schema, guide.binds(tool)) for tool in (guide.tools if dialect.tools else ())]
    outline = _outline(tools, guide.answer, guide.must_call, guide.one_call, dialect.tools)
    if outline is None:
        return None
    if thinks and dialect.thinking is not None:
        outline = _after_thinking(outline, dialect)
    return {"type": "structural_tag", "format": outline}


def _outline(
    tools: Sequence[Tool], answer: Schema | None, must_call: bool, one_call: bool, form: ToolFormat | None
) -> Format | None:
    if form is None or not tools:
        return None if answer is None else _answer(answer)
    if must_call:
        return _calls(tools, form, one_call)
    if answer is not None:
        return {"type": "or", "elements": [_calls(tools, form, one_call), _answer(answer)]}
    return {
        "type": "triggered_tags",
        "triggers": [CALL],
        "tags": [{"type": "tag", "begin": _BEGIN[form], "content": _tools(tools, form), "end": _END}],
        "stop_after_first": one_call,
        # A function without its tag would be read as a call, and be bound by nothing.
        "excludes": [FUNCTION] if form == "qwen3_coder" else [],
    }


def _after_thinking(outline: Format, dialect: Dialect) -> Format:
    _, end = dialect.thinking or ("", "")
    thinking = {"type": "any_text", "excludes": [CALL] if dialect.tools else []}
    return {
        "type": "sequence",
        "elements": [
            {"type": "tag", "begin": "", "content": thinking, "end": end},
            {"type": "regex", "pattern": "\\n{0,2}"},
            outline,
        ],
    }


def _answer(schema: Schema) -> Format:
    plan, rules = plan_schema(schema.schema, schema.path), Rules(path=schema.path)
    return _grammar(rules, Values(plan, rules).write(plan.root))


def _calls(tools: Sequence[Tool], form: ToolFormat, one_call: bool) -> Format:
    """Calls and nothing else: one at least."""
    rules = Rules()
    call = rules.add(f"{quote(_BEGIN[form])} {_alternatives(tools, form, rules)} {quote(_END)}")
    several = call if one_call else f"{call} {rules.loop(f'{quote(chr(10))} {call}')}"
    return _grammar(rules, several)


def _tools(tools: Sequence[Tool], form: ToolFormat) -> Format:
    """What stands in the tags of one call."""
    rules = Rules()
    return _grammar(rules, _alternatives(tools, form, rules))


def _alternatives(tools: Sequence[Tool], form: ToolFormat, rules: Rules) -> str:
    return rules.add(" | ".join(_tool(tool, form, rules) for tool in tools))


def _tool(tool: Tool, form: ToolFormat, rules: Rules) -> str:
    plan = plan_schema(tool.schema.schema, tool.schema.path) if tool.is_strict else _ANY_INPUT
    if form == "hermes":
        name = json.dumps(tool.name, ensure_ascii=False)[1:]
        root = plan.resolve(plan.root)
        arguments = Values(plan, rules).write(Anything(is_object=True) if isinstance(root, Anything) else root)
        return f'{quote(f"{name}, {chr(34)}arguments{chr(34)}:")} {BLANK} {arguments} "}}"'
    try:
        return f'{quote(f"{tool.name}>{chr(10)}")} {Parameters(plan, rules).write()} "</function>"'
    except Unwritable as unwritable:
        raise unenforceable(tool.schema.path, f"{unwritable} in this model's form of calls") from None


def _grammar(rules: Rules, root: str) -> Format:
    return {"type": "grammar", "grammar": rules.text(root)}
