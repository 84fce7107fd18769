"""The process that compiles grammars first: a real one, with the tokenizer of the small default model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from node.catalog import smollm2 as small
from node.catalog.served import ServedModel
from node.engine.dialect import Dialect
from node.engine.grammar import build_structural_tag
from node.engine.grammar_guard import Accepted, GrammarGuard, Refused, Verdict
from node.engine.port import Guide, Schema, Tool
from shared.errors import BACKEND_UNAVAILABLE, INVALID_REQUEST, UNSUPPORTED_PARAMETER, ApiError

MODEL = small.folder(Path(__file__).parents[3] / ".b3os" / "models")
TOKENS = 49152
TINY = Path(__file__).parents[2] / "models" / "tiny-vision"
HERMES = Dialect(tools="hermes")
PATH = "output_config.format.schema"


@pytest.fixture(scope="module")
async def guard(smollm2: ServedModel) -> AsyncIterator[GrammarGuard]:
    """A running one."""
    assert smollm2.source == str(MODEL)
    guard = GrammarGuard(str(MODEL), TOKENS)
    await guard.start()
    yield guard
    await guard.close()


def asking(schema: dict[str, Any]) -> Guide:
    """For JSON of a schema."""
    return Guide(answer=Schema(schema, PATH))


def word(text: str) -> Guide:
    """For one string."""
    return asking({"const": text})


def slow(number: int = 0) -> Guide:
    """Each bound is a pattern of digits, and many of them are much work."""
    bounds = ({"type": "number", "minimum": i * 1.37 + number, "maximum": i * 1e5 + 0.123} for i in range(190))
    return asking({"type": "object", "properties": {f"n{i}": bound for i, bound in enumerate(bounds)}})


async def judge(guard: GrammarGuard, guide: Guide) -> Verdict:
    """What the guard says."""
    return await guard.check(guide, HERMES, thinks=False)


def pid_of(guard: GrammarGuard) -> int:
    """The process."""
    assert guard.pid is not None
    return guard.pid


async def test_a_grammar_is_accepted_and_is_the_one_for_vllm(guard: GrammarGuard) -> None:
    verdict = await judge(guard, word("a"))
    assert isinstance(verdict, Accepted)
    assert json.loads(verdict.tag) == build_structural_tag(word("a"), HERMES, thinks=False)
    assert await guard.tag(word("a"), HERMES, thinks=False) == verdict.tag


async def test_free_text_is_accepted_whatever_the_number_of_tokens() -> None:
    """Masks have bits for 32 tokens at a time. xgrammar complains of tokens that are none, with the time of day."""
    tokenizer = json.loads((TINY / "tokenizer.json").read_text())
    tokens = len(tokenizer["model"]["vocab"]) + len(tokenizer["added_tokens"])
    guard = GrammarGuard(str(TINY), tokens)
    try:
        for schema in ({"type": "string"}, {"type": "object", "properties": {"a": {"type": "string"}}}, {}):
            assert isinstance(await judge(guard, asking(schema)), Accepted)
    finally:
        await guard.close()
    assert tokens % 32


async def test_thinking_is_covered_by_the_tag(guard: GrammarGuard) -> None:
    dialect = Dialect(thinking=("<think>", "</think>"), tools="hermes")
    tag = await guard.tag(word("a"), dialect, thinks=True)
    assert tag is not None
    assert json.loads(tag) == build_structural_tag(word("a"), dialect, thinks=True)


async def test_what_can_not_be_enforced_is_told_by_its_path(guard: GrammarGuard) -> None:
    with pytest.raises(ApiError) as caught:
        await guard.tag(asking({"type": "object", "not": {"required": ["x"]}}), HERMES, thinks=False)
    assert (caught.value.condition, caught.value.param) == (UNSUPPORTED_PARAMETER, f"{PATH}.not")
    with pytest.raises(ApiError) as caught:
        await guard.tag(asking({"type": "foo"}), HERMES, thinks=False)
    assert (caught.value.condition, caught.value.param) == (INVALID_REQUEST, f"{PATH}.type")


async def test_a_verdict_is_remembered_refusals_too(guard: GrammarGuard) -> None:
    for guide in (word("twice"), asking({"not": {}})):
        assert await judge(guard, guide) is await judge(guard, guide)


async def test_each_payer_has_verdicts_of_his_own(guard: GrammarGuard) -> None:
    payers = ("one", "other", "one", "other")
    asked = [guard.check(word("apart"), HERMES, thinks=False, payer=payer) for payer in payers]
    mine, others, mine_too, others_too = await asyncio.gather(*asked)
    assert isinstance(mine, Accepted)
    assert isinstance(others, Accepted)
    assert mine is mine_too
    assert others is others_too
    assert mine is not others
    assert await guard.check(word("apart"), HERMES, thinks=False, payer="one") is mine
    assert await guard.check(word("apart"), HERMES, thinks=False, payer="other") is others


async def test_what_is_too_much_is_killed_and_the_loop_goes_on(guard: GrammarGuard) -> None:
    check = asyncio.create_task(judge(guard, slow()))
    turns = 0
    while not check.done():
        await asyncio.sleep(0.005)
        turns += 1
    assert check.result() == Refused("slow")
    assert turns > 5


async def test_more_than_256_kib_of_schemas_are_refused_before_they_are_read() -> None:
    heavy = {"type": "object", "description": "x" * 60_000}
    tools = tuple(Tool(f"f{i}", Schema(heavy, f"tools.{i}.input_schema"), is_strict=True) for i in range(5))
    with pytest.raises(ApiError) as caught:
        await GrammarGuard("no such model", TOKENS).tag(Guide(tools), HERMES, thinks=False)
    assert caught.value.param == "tools.4.input_schema"


async def test_a_quick_grammar_does_not_wait_for_slow_ones(guard: GrammarGuard) -> None:
    tasks = [asyncio.create_task(judge(guard, slow(number))) for number in range(1, 5)]
    await asyncio.sleep(0.1)
    assert isinstance(await judge(guard, word("quick")), Accepted)
    assert not all(task.done() for task in tasks)
    assert set(await asyncio.gather(*tasks)) == {Refused("slow")}


async def test_many_who_ask_the_same_wait_for_one_verdict(guard: GrammarGuard) -> None:
    verdicts = await asyncio.gather(*(judge(guard, word("same")) for _ in range(100)))
    assert len({id(verdict) for verdict in verdicts}) == 1


async def test_who_gives_up_does_not_take_the_verdict_from_others(guard: GrammarGuard) -> None:
    impatient, patient = (asyncio.create_task(judge(guard, word("shared"))) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    assert isinstance(await patient, Accepted)


async def test_too_many_at_once_are_told_to_come_back(guard: GrammarGuard) -> None:
    guides = [word(f"crowd {number}") for number in range(80)]
    outcomes = await asyncio.gather(*(judge(guard, guide) for guide in guides), return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    assert refusals
    assert {error.condition for error in refusals} == {BACKEND_UNAVAILABLE}
    assert any(isinstance(outcome, Accepted) for outcome in outcomes)


async def test_a_guide_without_promises_is_not_checked() -> None:
    assert await GrammarGuard("no such model", TOKENS).tag(Guide(), HERMES, thinks=False) is None


async def test_a_guide_that_can_be_kept_is_taken(guard: GrammarGuard) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 90}}, "required": ["city"]}
    guide = Guide((Tool("get_weather", Schema(schema, "tools.0.input_schema")),), must_call=True)
    assert await guard.tag(guide, HERMES, thinks=False) is not None


async def test_the_schema_to_blame_is_named(guard: GrammarGuard) -> None:
    heavy = slow(9).answer
    assert heavy is not None
    tools = (
        Tool("light", Schema({"type": "object"}, "tools.0.input_schema"), is_strict=True),
        Tool("heavy", Schema(heavy.schema, "tools.1.input_schema"), is_strict=True),
    )
    with pytest.raises(ApiError) as caught:
        await guard.tag(Guide(tools), HERMES, thinks=False)
    assert (caught.value.condition, caught.value.param) == (UNSUPPORTED_PARAMETER, "tools.1.input_schema")


async def test_a_killed_process_is_replaced() -> None:
    guard = GrammarGuard(str(MODEL), TOKENS)
    await guard.start()
    first = pid_of(guard)
    check = asyncio.create_task(judge(guard, slow()))
    await asyncio.sleep(0.1)
    os.kill(first, signal.SIGKILL)
    assert await check == Refused("slow")
    assert pid_of(guard) != first
    second = pid_of(guard)
    await guard.close()
    assert not psutil.pid_exists(second)
    with pytest.raises(ApiError):
        await judge(guard, word("late"))


async def test_a_model_without_a_tokenizer_is_no_hang() -> None:
    with pytest.raises(ApiError) as caught:
        await GrammarGuard("/nowhere", TOKENS).start()
    assert caught.value.condition == BACKEND_UNAVAILABLE


async def test_it_ends_with_the_process_that_started_it_and_sees_no_secrets(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from node.engine.grammar_guard import GrammarGuard\n"
        "async def main():\n"
        f"    guard = GrammarGuard({str(MODEL)!r}, {TOKENS})\n"
        "    await guard.start()\n"
        "    print(guard.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env={**os.environ, "B3OS_SECRET": "hush"}
    )
    assert parent.stdout is not None
    child = psutil.Process(int(await asyncio.wait_for(parent.stdout.readline(), 120)))
    assert "B3OS_SECRET" not in child.environ()
    assert child.num_threads() == 1
    parent.kill()
    await parent.wait()
    for _ in range(600):
        if not child.is_running() or child.status() == psutil.STATUS_ZOMBIE:
            break
        await asyncio.sleep(0.1)
    else:
        pytest.fail("it outlived its parent")
