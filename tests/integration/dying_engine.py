"""A process whose engine dies, is started again, and which is then killed itself; `test_vllm_death.py` runs it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal

from node.catalog.served import ServedModel
from node.engine.port import Guide, Prompt, Sampling, Text
from node.engine.vllm_engine import VllmEngine
from shared.errors import ApiError
from tests.vllm_fixture import small_model, start_smollm2


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def cores() -> list[int]:
    children = multiprocessing.active_children()
    return [child.pid for child in children if child.name.startswith("EngineCore") and child.pid is not None]


async def answer(engine: VllmEngine, *, kill_after_first: bool = False) -> str:
    rendered = await engine.render(Prompt([{"role": "user", "content": "What is the capital of France?"}]))
    text = ""
    async for piece in engine.generate(rendered, Guide(), Sampling(max_tokens=2000, temperature=0), "req_test"):
        if isinstance(piece, Text):
            text += piece.text
            if kill_after_first:
                os.kill(cores()[0], signal.SIGKILL)
    return text


async def hang_at_start(model: ServedModel) -> None:
    """A start whose core stands still is ended like any other."""
    starting = asyncio.create_task(start_smollm2(model))
    while not cores():
        await asyncio.sleep(0.01)
    os.kill(cores()[0], signal.SIGSTOP)
    starting.cancel()
    async with asyncio.timeout(60):
        await asyncio.gather(starting, return_exceptions=True)
    tell(was_cancelled=starting.cancelled(), cores_after_cancel=cores())


async def main() -> None:
    model = await asyncio.to_thread(small_model)
    await hang_at_start(model)
    engine = await start_smollm2(model)
    try:
        await answer(engine, kill_after_first=True)
    except ApiError as error:
        tell(code=error.condition.code, retry_after_s=error.retry_after_s, message=error.message)
    async with asyncio.timeout(60):
        tell(cause=await engine.wait_until_dead())
    try:
        await answer(engine)
    except ApiError as error:
        tell(code_when_dead=error.condition.code)
    await engine.shutdown()
    again = await start_smollm2(model)
    tell(text=await answer(again))
    tell(cores=cores())
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main())
