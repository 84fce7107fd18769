"""A process whose engine dies, is started again, and which is then killed itself; `test_vllm_death.py` runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import psutil

from node.engine.port import Guide, Prompt, Sampling, Text
from node.engine.vllm_engine import VllmEngine
from shared.errors import ApiError
from tests.vllm_fixture import start_smollm2


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def cores() -> list[int]:
    return [child.pid for child in psutil.Process().children() if "EngineCore" in " ".join(child.cmdline())]


async def answer(engine: VllmEngine, *, kill_after_first: bool = False) -> str:
    rendered = await engine.render(Prompt([{"role": "user", "content": "What is the capital of France?"}]))
    text = ""
    async for piece in engine.generate(rendered, Guide(), Sampling(max_tokens=2000, temperature=0), "req_test"):
        if isinstance(piece, Text):
            text += piece.text
            if kill_after_first:
                os.kill(cores()[0], signal.SIGKILL)
    return text


async def main() -> None:
    engine = await start_smollm2()
    try:
        await answer(engine, kill_after_first=True)
    except ApiError as error:
        tell(code=error.condition.code, retry_after_s=error.retry_after_s, message=error.message)
    async with asyncio.timeout(2):
        tell(cause=await engine.wait_until_dead())
    try:
        await answer(engine)
    except ApiError as error:
        tell(code_when_dead=error.condition.code)
    await engine.shutdown()
    again = await start_smollm2()
    tell(text=await answer(again))
    tell(cores=cores())
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main())
