"""The process that compiles grammars first: a real one, with the tokenizer of the small default model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from node.catalog import smollm2
from node.engine.dialect import Dialect
from node.engine.grammar_guard import Accepted, GrammarGuard, Refused
from node.engine.port import Guide, Schema, Tool
from shared.errors import BACKEND_UNAVAILABLE, INVALID_REQUEST, UNSUPPORTED_PARAMETER, ApiError

MODEL = smollm2.folder(Path(__file__).parents[3] / ".b3os" / "models")
TOKENS = 49152
HERMES = Dialect(tools="hermes")

pytest.importorskip("xgrammar")
pytestmark = pytest.mark.skipif(not (MODEL / "tokenizer.json").exists(), reason="the small model is not there")


@pytest.fixture(scope="module")
async def guard() -> AsyncIterator[GrammarGuard]:
    """A running one."""
    guard = GrammarGuard(str(MODEL), TOKENS)
    await guard.start()
    yield guard
    await guard.close()


def grammar(text: str) -> dict[str, Any]:
    """A structural tag that is one grammar."""
    return {"type": "structural_tag", "format": {"type": "grammar", "grammar": text}}


def schema_tag(schema: dict[str, Any]) -> dict[str, Any]:
    """A structural tag as vLLM's own parsers make it, with nothing refused before."""
    return {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}


def pid_of(guard: GrammarGuard) -> int:
    """The process."""
    assert guard._process is not None
    return guard._process._process.pid


async def test_a_grammar_is_accepted_with_what_it_cost(guard: GrammarGuard) -> None:
    verdict = await guard.check(grammar('root ::= "a" [a-z]*'))
    assert isinstance(verdict, Accepted)
    assert verdict.compile_ms < 100


async def test_a_broken_grammar_is_invalid(guard: GrammarGuard) -> None:
    assert await guard.check(grammar("root ::= nothing")) == Refused("invalid")
    assert await guard.check(schema_tag({"type": "foo"})) == Refused("invalid")


async def test_a_verdict_is_remembered_refusals_too(guard: GrammarGuard) -> None:
    for tag in (grammar('root ::= "twice"'), grammar("root ::= nowhere")):
        first = await guard.check(tag)
        start = time.perf_counter()
        assert await guard.check(tag) is first
        assert time.perf_counter() - start < 0.02


HOSTILE: dict[str, dict[str, Any]] = {
    "dots": schema_tag({"type": "string", "pattern": "^.{5000}$"}),
    "letters": schema_tag({"type": "string", "pattern": "^[a-z]{1,5000}$"}),
    "optional": schema_tag({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(800)}}),
    "length": schema_tag({"type": "string", "maxLength": 10**9}),
    "masks": grammar('root ::= "\\"" ("x" | "y" | [^z\\"]*)* "\\""'),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
async def test_what_is_too_much_is_killed_and_the_loop_goes_on(guard: GrammarGuard, name: str) -> None:
    check = asyncio.create_task(guard.check(HOSTILE[name]))
    lag = 0.0
    while not check.done():
        start = time.perf_counter()
        await asyncio.sleep(0.005)
        lag = max(lag, time.perf_counter() - start)
    verdict = check.result()
    assert isinstance(verdict, Refused) or verdict.compile_ms < 1000
    assert lag < 0.5  # on a machine that others use too


async def test_the_slow_one_is_refused_for_being_slow(guard: GrammarGuard) -> None:
    assert await guard.check(HOSTILE["dots"]) == Refused("slow")


async def test_a_quick_grammar_does_not_wait_for_slow_ones(guard: GrammarGuard) -> None:
    slow = [
        asyncio.create_task(guard.check(schema_tag({"type": "string", "pattern": f"^.{{{5000 + number}}}$"})))
        for number in range(4)
    ]
    await asyncio.sleep(0.2)
    assert isinstance(await guard.check(grammar('root ::= "quick" [a-z]*')), Accepted)
    assert not all(task.done() for task in slow)
    assert set(await asyncio.gather(*slow)) == {Refused("slow")}


async def test_many_who_ask_the_same_wait_for_one_verdict(guard: GrammarGuard) -> None:
    tag = grammar('root ::= "same" [a-z]*')
    verdicts = await asyncio.gather(*(guard.check(tag) for _ in range(100)))
    assert len({id(verdict) for verdict in verdicts}) == 1


async def test_who_gives_up_does_not_take_the_verdict_from_others(guard: GrammarGuard) -> None:
    tag = grammar('root ::= "shared" [a-z]*')
    impatient, patient = asyncio.create_task(guard.check(tag)), asyncio.create_task(guard.check(tag))
    await asyncio.sleep(0)
    impatient.cancel()
    assert isinstance(await patient, Accepted)


async def test_too_many_at_once_are_told_to_come_back(guard: GrammarGuard) -> None:
    tags = [grammar(f'root ::= "crowd {number}"') for number in range(80)]
    outcomes = await asyncio.gather(*map(guard.check, tags), return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    assert refusals
    assert {error.condition for error in refusals} == {BACKEND_UNAVAILABLE}
    assert any(isinstance(outcome, Accepted) for outcome in outcomes)


async def test_a_guide_without_promises_is_not_checked() -> None:
    await GrammarGuard("no such model", TOKENS).check_guide(Guide(), HERMES)


async def test_a_guide_that_can_be_kept_is_taken(guard: GrammarGuard) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 90}}, "required": ["city"]}
    guide = Guide((Tool("get_weather", Schema(schema, "tools.0.input_schema")),), must_call=True)
    await guard.check_guide(guide, HERMES)


async def test_the_schema_to_blame_is_named(guard: GrammarGuard, monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = {"properties": {f"s{i}": {"type": "string", "minLength": 32 - i, "maxLength": 99} for i in range(3)}}
    tools = (
        Tool("light", Schema({"type": "object"}, "tools.0.input_schema"), True),
        Tool("heavy", Schema(heavy, "tools.1.input_schema"), True),
    )
    check = guard.check

    async def strict(tag: dict[str, Any]) -> Accepted | Refused:
        return Refused("slow") if "max_chars=99" in json.dumps(tag) else await check(tag)

    monkeypatch.setattr(guard, "check", strict)
    with pytest.raises(ApiError) as caught:
        await guard.check_guide(Guide(tools), HERMES)
    assert caught.value.condition == UNSUPPORTED_PARAMETER
    assert caught.value.param == "tools.1.input_schema"


async def test_what_cannot_be_enforced_is_told_before_anything_is_compiled() -> None:
    guard = GrammarGuard("no such model", TOKENS)
    with pytest.raises(ApiError) as caught:
        await guard.check_guide(Guide(answer=Schema({"type": "foo"}, "output_config.format.schema")), HERMES)
    assert (caught.value.condition, caught.value.param) == (INVALID_REQUEST, "output_config.format.schema.type")


async def test_a_killed_process_is_replaced() -> None:
    guard = GrammarGuard(str(MODEL), TOKENS)
    await guard.start()
    first = pid_of(guard)
    slow = asyncio.create_task(guard.check(HOSTILE["dots"]))
    await asyncio.sleep(0.1)
    os.kill(first, signal.SIGKILL)
    assert await slow == Refused("slow")
    assert pid_of(guard) != first
    second = pid_of(guard)
    await guard.close()
    assert not psutil.pid_exists(second)
    with pytest.raises(ApiError):
        await guard.check(grammar('root ::= "late"'))


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
        "    print(guard._process._process.pid, flush=True)\n"
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
    for _ in range(100):
        if not child.is_running() or child.status() == psutil.STATUS_ZOMBIE:
            break
        await asyncio.sleep(0.1)
    else:
        pytest.fail("it outlived its parent")
