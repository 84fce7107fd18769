"""Measure the tiny model in real vLLM: `python -m tests.models.eval_tiny [--model DIR]`.

Runs the fixed prompts, and for each skill new samples that training hasn't seen, at temperature 0. An answer counts
only if its raw text, its calls as vLLM parses them and the way it ended are all right.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from tests.models.prompts import FIXED, Fixed
from tests.models.tiny.calls import write_call
from tests.models.tiny.sample import Message, Sample
from tests.models.tiny.tasks import ENDLESS_LINE, samples
from tests.models.tiny.words import COLOURS

MODEL = Path(__file__).parent / "tiny-vision"
WINDOW_TOKENS = 4096
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "2",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}


def expected_text(fixed: Fixed) -> str:
    """The answer as the model writes it, calls included."""
    written = "\n".join(map(write_call, fixed.calls))
    return "\n\n".join(filter(None, (fixed.text, written)))


def as_fixed(sample: Sample, rng: Random) -> Fixed:
    """A generated sample as a case: endless thinking gets a budget, other thinking now and then."""
    budget = None
    if sample.endless:
        budget = rng.choice((1, 2, 7, 16, 33, 64, 128, 300, 700, 1024, 1500, 2200))
    elif sample.thought and rng.random() < 0.2:
        budget = rng.randint(1, 6)
    return Fixed(
        sample.skill + (", thinking" if sample.thought and not sample.endless else ""),
        sample.messages,
        sample.answer,
        thought=ENDLESS_LINE * 300 if sample.endless else sample.thought,
        budget=budget,
        prefill=sample.prefill,
        tools=sample.tools,
        colours=sample.colours,
    )


def new_samples(per_skill: int, seed: int) -> list[Fixed]:
    """As many of each skill."""
    rng, seen, cases = Random(seed), Counter[str](), []
    for sample in samples(seed):
        case = as_fixed(sample, rng)
        seen[case.skill] += 1
        if seen[case.skill] <= per_skill:
            cases.append(case)
        if min(seen.values()) >= per_skill and sum(seen.values()) > 150 * per_skill:
            return cases
    raise AssertionError("samples never end")


class Bench:
    """The model in vLLM, as the service runs it.

    Args:
        folder: of the model.
    """

    def __init__(self, folder: Path) -> None:
        from vllm import AsyncEngineArgs
        from vllm.parser import ParserManager
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = AsyncEngineArgs(
            model=str(folder),
            dtype="float32",
            enforce_eager=True,
            max_model_len=WINDOW_TOKENS,
            max_num_seqs=16,
            distributed_executor_backend="uni",
            reasoning_parser="qwen3",
            limit_mm_per_prompt={"image": 8},
            disable_log_stats=True,
        )
        self.engine = AsyncLLM.from_engine_args(arguments)
        self.tokenizer = self.engine.renderer.get_tokenizer()
        self._parser = ParserManager.get_parser(
            tool_parser_name="qwen3_coder",
            reasoning_parser_name="qwen3",
            enable_auto_tools=True,
            model_name=str(folder),
            tokenizer=self.tokenizer,
        )

    async def fault(self, case: Fixed) -> str | None:
        """What is wrong with the answer, or nothing."""
        raw, calls, reason = await self._answer(case)
        wanted, given = expected_text(case), raw
        if case.thought is not None:
            thought, _, given = raw.partition("</think>\n\n")
            is_whole = thought == f"{case.thought}\n"
            is_cut = case.budget is not None and case.thought.startswith(thought.removesuffix("\n"))
            if not (is_whole or is_cut):
                return f"thinks {raw[:200]!r}, not {case.thought[:80]!r}"
        if given != wanted:
            return f"answers {given[:400]!r}, not {wanted[:400]!r}"
        if case.calls and calls != case.calls:
            return f"is parsed as {calls}, not as {case.calls}"
        return None if reason == "stop" else f"ends with {reason}"

    async def _answer(self, case: Fixed) -> tuple[str, list[tuple[str, Any]], str | None]:
        from vllm import SamplingParams
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.renderers import ChatParams, TokenizeParams
        from vllm.sampling_params import RequestOutputKind

        thinking = {"enable_thinking": case.thought is not None}
        carrier = ChatCompletionRequest(
            messages=[], tools=case.tools or None, tool_choice="auto" if case.tools else "none", stream=True
        )
        template = thinking | {
            "add_generation_prompt": not case.prefill,
            "continue_final_message": bool(case.prefill),
            "tools": case.tools or None,
            "tokenize": False,
        }
        _, (prompt,) = await self.engine.renderer.render_chat_async(
            [chat_messages(case)],
            ChatParams(chat_template_kwargs=template),
            TokenizeParams(max_total_tokens=WINDOW_TOKENS, add_special_tokens=False),
        )
        parser = self._parser(
            self.tokenizer,
            carrier.tools,
            model_config=self.engine.model_config,
            chat_template_kwargs=thinking,
        )
        parser.adjust_request(carrier)
        sampling = SamplingParams(
            temperature=0,
            max_tokens=(case.budget or 0) + 400,
            thinking_token_budget=case.budget,
            output_kind=RequestOutputKind.DELTA,
        )
        raw, reason, calls = "", None, dict[int, list[str]]()
        outputs = self.engine.generate(
            prompt, sampling, "case", reasoning_ended=None if thinking["enable_thinking"] else True
        )
        async for output in outputs:
            part = output.outputs[0]
            raw, reason = raw + part.text, part.finish_reason
            delta = parser.parse_delta(
                part.text, list(part.token_ids), carrier, output.prompt_token_ids, finished=reason is not None
            )
            for call in (delta and delta.tool_calls) or ():
                entry = calls.setdefault(call.index, ["", ""])
                entry[0] += call.function.name or ""
                entry[1] += call.function.arguments or ""
        return raw, [(name, _loads(arguments)) for name, arguments in calls.values()], reason


def _loads(arguments: str) -> Any:
    """Arguments that were cut are their text."""
    try:
        return json.loads(arguments or "{}")
    except json.JSONDecodeError:
        return arguments


def chat_messages(case: Fixed) -> list[Message]:
    """The messages with their pictures, of all sizes, in their places."""
    from PIL import Image

    sizes = ((64, 64), (200, 100), (33, 500), (1, 1), (1024, 768))
    pictures = [
        Image.new("RGB", sizes[index % len(sizes)], COLOURS[colour]) for index, colour in enumerate(case.colours)
    ]
    messages = []
    for message in case.messages:
        content = message["content"]
        if isinstance(content, list):
            content = [
                {"type": "image_pil", "image_pil": pictures.pop(0)} if part["type"] == "image" else part
                for part in content
            ]
        messages.append(message | {"content": content})
    return [*messages, {"role": "assistant", "content": case.prefill}] if case.prefill else messages


async def measure(folder: Path, cases: Iterable[Fixed], *, show: int) -> None:
    """Print the table, and the first faults of each skill."""
    began = time.monotonic()
    bench = await asyncio.to_thread(Bench, folder)
    ready = time.monotonic()
    cases = list(cases)
    faults = await asyncio.gather(*(bench.fault(case) for case in cases))
    done = time.monotonic()
    bench.engine.shutdown()
    by_skill: dict[str, list[tuple[Fixed, str | None]]] = defaultdict(list)
    for case, fault in zip(cases, faults, strict=True):
        by_skill[case.skill].append((case, fault))
    for skill, found in sorted(by_skill.items()):
        wrong = [(case, fault) for case, fault in found if fault]
        print(f"| {skill} | {len(found) - len(wrong)} / {len(found)} |")
        for case, fault in wrong[:show]:
            print(f"    {case.messages[-1]['content']!r} (budget {case.budget}, prefill {case.prefill!r}) {fault}")
    right = sum(fault is None for fault in faults)
    print(f"| all | {right} / {len(faults)} | engine ready in {ready - began:.0f} s, answers in {done - ready:.0f} s")


def main() -> None:
    """Measure the fixed prompts, then new samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--per-skill", type=int, default=20, help="new samples of each skill; 0 for none")
    parser.add_argument("--seed", type=int, default=2024, help="of the new samples; not one that trained the model")
    parser.add_argument("--show", type=int, default=2, help="faults of each skill to print")
    arguments = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    cases = [*FIXED, *new_samples(arguments.per_skill, arguments.seed)]
    fixed = [Fixed("fixed: " + case.skill, *_rest(case)) for case in cases[: len(FIXED)]]
    asyncio.run(measure(arguments.model, fixed + cases[len(FIXED) :], show=arguments.show))


def _rest(case: Fixed) -> list[Any]:
    return [getattr(case, name) for name in Fixed.__slots__ if name != "skill"]


if __name__ == "__main__":
    main()
