"""What a model might have said: canned outputs of an engine, one real token of a real tokenizer in each.

Decides what both ways to the wire are fed with. SmolLM2's tokenizer, with the markers of Qwen's dialect as Qwen has
them: tokens of their own that a decoder doesn't leave out.
"""

from __future__ import annotations

import argparse
import inspect
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.catalog import smollm2

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "tests" / "models" / "tiny" / "chat_template.jinja"
MODEL_ID = "b3os/bench"
THINK, THINK_END = "<think>", "</think>"
MARKERS = (THINK, THINK_END, "<tool_call>", "</tool_call>")
FILE_NAME = "src/arguments.py"
FILE_TOOL = {
    "name": "write_file",
    "description": "Write a file.",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
}


@dataclass(frozen=True, slots=True)
class Case:
    """One answer.

    Attributes:
        request: the body that asks for it. answer: all that the model writes. says: what a client must get of it.
        is_plain: the model has no parsers: it neither thinks nor calls.
    """

    name: str
    request: dict[str, Any]
    answer: str
    says: str
    is_plain: bool = False


def make_tokenizer(folder: Path) -> Any:
    """Write the folder of a model without weights, and return its tokenizer."""
    from transformers import AddedToken, AutoTokenizer

    source = smollm2.prepare(ROOT / ".b3os" / "models", print)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in MARKERS])
    tokenizer.chat_template = TEMPLATE.read_text()
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        shutil.copy(source / name, folder)
    return tokenizer


def make_cases(tokenizer: Any) -> list[Case]:
    """Prose for text and thinking, source code for the input of a tool."""
    prose, code = (ROOT / "LICENSE").read_text().strip(), inspect.getsource(argparse)

    def first(text: str, tokens: int) -> str:
        ids = tokenizer.encode(text)[:tokens]
        return str(tokenizer.decode(ids)).strip()

    plain = _text_case("text, 2000 tokens, model without parsers", first(prose, 2000), is_plain=True)
    texts = [_text_case(f"text, {size} tokens", first(prose, size)) for size in (500, 2000)]
    thoughts = [_thinking_case(f"thinking, {size} tokens", first(prose, size)) for size in (500, 2000)]
    inputs = [_tool_case(f"tool input, {size} tokens", first(code, size)) for size in (500, 5000)]
    return [plain, *texts, *thoughts, *inputs]


def _text_case(name: str, text: str, *, is_plain: bool = False) -> Case:
    return Case(name, _request(), text, text, is_plain)


def _thinking_case(name: str, thinking: str) -> Case:
    request = _request(thinking={"type": "enabled", "budget_tokens": 4096})
    return Case(name, request, f"{thinking}\n{THINK_END}\n\nDone.", thinking + "Done.")


def _tool_case(name: str, content: str) -> Case:
    values = {"path": FILE_NAME, "content": content}
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    call = f"<tool_call>\n<function=write_file>\n{parameters}</function>\n</tool_call>"
    return Case(name, _request(tools=[FILE_TOOL]), call, FILE_NAME + content)


def _request(**more: Any) -> dict[str, Any]:
    return {
        "model": MODEL_ID,
        "max_tokens": 6000,
        "stream": True,
        "thinking": {"type": "disabled"},
        "messages": [{"role": "user", "content": "Go on."}],
        **more,
    }


def make_outputs(tokenizer: Any, answer: str) -> list[Any]:
    """An answer as vLLM gives it, token by token, and its end."""
    from tokenizers.decoders import DecodeStream
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.v1.metrics.stats import RequestStateStats

    stream = DecodeStream(skip_special_tokens=False)
    ids = [*tokenizer.encode(answer), tokenizer.eos_token_id]
    texts = [stream.step(tokenizer.backend_tokenizer, number) or "" for number in ids[:-1]] + [""]
    assert "".join(texts) == answer
    metrics = RequestStateStats(queued_ts=1.0, scheduled_ts=1.001, first_token_ts=1.02)

    def output(number: int, text: str, reason: str | None) -> RequestOutput:
        completion = CompletionOutput(0, text, [number], None, None, finish_reason=reason)
        return RequestOutput(
            request_id="canned",
            prompt=None,
            prompt_token_ids=[1, 2, 3],
            prompt_logprobs=None,
            outputs=[completion],
            finished=reason is not None,
            metrics=metrics,
            num_cached_tokens=0,
        )

    reasons = [None] * (len(ids) - 1) + ["stop"]
    return list(map(output, ids, texts, reasons))
