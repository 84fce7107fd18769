"""vLLM's parser of thinking behind our split, on a tokenizer that knows the markers; the tokens are canned."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from node.catalog.served import ServedModel
from node.engine.port import End, Piece, Started, Text, Thinking
from node.engine.vllm_engine import Reasoning, RenderedPrompt, VllmEngine, VllmGeneration

MARKERS = {"<repo_name>": "<think>", "<reponame>": "</think>"}


def thinking_tokenizer(source: Path, target: Path, *, markers_are_special: bool) -> Any:
    """The small model's tokenizer, with two of its unused tokens renamed."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (target / name).read_text()
        for old, new in MARKERS.items():
            text = text.replace(json.dumps(old), json.dumps(new))
        data = json.loads(text)
        for token in data.get("added_tokens", []):
            if token["content"] in MARKERS.values():
                token["special"] = markers_are_special
        data.pop("additional_special_tokens", None)
        data.pop("extra_special_tokens", None)
        (target / name).write_text(json.dumps(data))
    return AutoTokenizer.from_pretrained(target)


async def canned(tokenizer: Any, ids: list[int], step: int, *, skip_special: bool) -> AsyncGenerator[Any]:
    for start in range(0, len(ids), step):
        delta = ids[start : start + step]
        is_last = start + step >= len(ids)
        completion = SimpleNamespace(
            text=tokenizer.decode(delta, skip_special_tokens=skip_special),
            token_ids=delta,
            finish_reason="stop" if is_last else None,
        )
        yield SimpleNamespace(outputs=[completion], num_cached_tokens=0, metrics=None)


def joined(pieces: list[Piece]) -> tuple[str, str]:
    thinking = "".join(piece.text for piece in pieces if isinstance(piece, Thinking))
    return thinking, "".join(piece.text for piece in pieces if isinstance(piece, Text))


@pytest.mark.parametrize("step", [1, 3, 99])
@pytest.mark.parametrize("markers_are_special", [True, False])
@pytest.mark.parametrize(
    ("prompt", "thinks", "output", "expected"),
    [
        (
            "<think>\n",
            True,
            "I add.\n\nIt is 4.\n</think>\n\n4.\n\nDone<|im_end|>",
            ("I add.\n\nIt is 4.", "4.\n\nDone"),
        ),
        ("<think>\n", True, "I never end<|im_end|>", ("I never end", "")),
        ("<think>\n\n</think>\n\n", False, "4.<|im_end|>", ("", "4.")),
    ],
)
async def test_thinking_and_text_come_apart(
    vllm_engine: VllmEngine,
    smollm2: ServedModel,
    tmp_path: Path,
    step: int,
    markers_are_special: bool,
    prompt: str,
    thinks: bool,
    output: str,
    expected: tuple[str, str],
) -> None:
    tokenizer = thinking_tokenizer(Path(smollm2.source), tmp_path / "model", markers_are_special=markers_are_special)
    reasoning = Reasoning("qwen3", tokenizer, vllm_engine._engine.model_config)
    prompt_ids = tokenizer.encode("<|im_start|>assistant\n" + prompt, add_special_tokens=False)
    rendered = RenderedPrompt({"prompt_token_ids": prompt_ids}, thinking=thinks)
    split, skip_special, core = reasoning.begin(rendered)
    ids = tokenizer.encode(output, add_special_tokens=False)
    generation = VllmGeneration(canned(tokenizer, ids, step, skip_special=skip_special), split, len(prompt_ids))
    pieces = [piece async for piece in generation]
    assert pieces[0] == Started()
    assert pieces[-1] == End("stop")
    thinking, text = joined(pieces)
    assert (thinking, text.removesuffix("<|im_end|>")) == expected
    assert skip_special is not markers_are_special
    assert core["reasoning_ended"] is not thinks
    assert generation.usage.output_tokens == len(ids)
