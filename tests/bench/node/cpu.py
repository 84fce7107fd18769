"""CPU per streamed token, ours beside vLLM's, from the same outputs in the same process.

Decides how it is measured: in turn, round by round, and the median of the rounds. Both must say the same.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from node.catalog.served import ServedModel
from node.engine.vllm_setup import set_environment
from tests.bench.node.canned import MODEL_ID, Case, make_cases, make_outputs, make_tokenizer
from tests.bench.node.canned_engine import CannedEngine
from tests.bench.node.ours import OurNode
from tests.bench.node.theirs import TheirServer

ROUNDS = 9
CONTEXT_TOKENS = 8192
MOST_S = 20.0
"""No more rounds of a way whose first took so long."""
Answer = Callable[[dict[str, Any]], Awaitable[tuple[float, bytes]]]


@dataclass(frozen=True, slots=True)
class CpuRow:
    """Microseconds per token of one case."""

    case: str
    tokens: int
    ours_us: float
    theirs_us: float

    @property
    def ratio(self) -> float:
        """How many times more theirs is."""
        return self.theirs_us / self.ours_us


async def measure_cpu(rounds: int = ROUNDS) -> list[CpuRow]:
    """Every case."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = make_tokenizer(folder)
        for is_plain in (True, False):
            model = ServedModel(MODEL_ID, "Bench", str(folder), context_tokens=CONTEXT_TOKENS)
            if not is_plain:
                model = replace(model, reasoning_parser="qwen3", tool_parser="qwen3_coder")
            set_environment(model, on_cpu=True)
            engine = CannedEngine(model)
            ours, theirs = await OurNode.start(engine, model), await TheirServer.start(engine, model)
            gc.freeze()  # as both servers do
            for case in make_cases(tokenizer):
                if case.is_plain == is_plain:
                    engine.outputs = make_outputs(tokenizer, case.answer)
                    rows.append(await _measure(case, len(engine.outputs), ours.answer, theirs.answer, rounds))
            await ours.stop()
    return rows


async def _measure(case: Case, tokens: int, ours: Answer, theirs: Answer, rounds: int) -> CpuRow:
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for taken, answer in zip(seconds, (ours, theirs), strict=True):
            if not taken or taken[0] < MOST_S:
                cpu_s, said = await answer(case.request)
                assert _text_of(said) == case.says, f"{case.name}: another answer than was canned"
                taken.append(cpu_s)
    ours_us, theirs_us = (_median_us(taken, tokens) for taken in seconds)
    return CpuRow(case.name, tokens, ours_us, theirs_us)


def _median_us(seconds: Sequence[float], tokens: int) -> float:
    """The first round of several is to warm up."""
    return statistics.median(seconds[1:] or seconds) / tokens * 1e6


def _text_of(stream: bytes) -> str:
    """All that a client gets of an answer: thinking, text, and the values of a tool's input.

    Without the line breaks around it, which vLLM leaves where the template puts them and we don't.
    """
    parts = {"thinking": "", "text": "", "partial_json": ""}
    for line in stream.splitlines():
        if line.startswith(b"data: {"):
            delta = orjson.loads(line[6:]).get("delta", {})
            for name in parts.keys() & delta.keys():
                parts[name] += delta[name]
    values = orjson.loads(parts.pop("partial_json") or "{}").values()
    return "".join(part.strip("\n") for part in (*parts.values(), *values))
