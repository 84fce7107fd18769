"""What a hostile schema costs the others: `python -m tests.bench.hostile`.

The whole service with the tiny model. Three callers ask every 20 ms, for the list of models, for one token, and for
one token of JSON, while three new schemas of a kind arrive. Prints the longest answer of each in milliseconds.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.stack import ROOT, DevCommand, DevStack, running_dev

SETTINGS = {
    "B3OS_MODEL": str(ROOT / "tests" / "models" / "tiny-vision"),
    "B3OS_MODEL_REASONING_PARSER": "qwen3",
    "B3OS_MODEL_TOOL_PARSER": "qwen3_coder",
}
INTERVAL_S, AROUND_S, KINDS = 0.02, 0.5, 3


def of(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


AGE = of({"age": {"type": "integer", "minimum": 1, "maximum": 99}}, "age")
TWENTY = [of({f"q{number}": {"type": "string"}}) for number in range(20)]
SCHEMAS: dict[str, dict[str, Any] | None] = {
    "nothing": None,
    "^.{5000}$": of({"a": {"type": "string", "pattern": "^.{5000}$"}}, "a"),
    "800 optional properties": of({f"p{number}": {"type": "string"} for number in range(800)}),
    "maxLength: 1000000000": of({"a": {"type": "string", "maxLength": 10**9}}, "a"),
    "40 x 20 alternatives": of({f"p{number}": {"anyOf": TWENTY} for number in range(40)}),
    "190 bounded numbers": of(
        {f"n{i}": {"type": "number", "minimum": i * 1.37, "maximum": i * 1e5 + 0.123} for i in range(190)}
    ),
    "200 optional properties": of({f"p{number}": {"type": "string"} for number in range(200)}),
}


class Caller:
    """Sends requests to one stack."""

    def __init__(self, stack: DevStack, session: aiohttp.ClientSession) -> None:
        self._stack, self._session = stack, session
        self._headers = {"Authorization": f"Bearer {stack.api_key}"}

    async def ask(self, schema: dict[str, Any] | None) -> int:
        """One token, as JSON of a schema if there is one; the status."""
        body: dict[str, Any] = {
            "model": self._stack.model,
            "max_tokens": 1,
            "messages": [{"role": "user", "content": "Say: red"}],
        }
        if schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        url = f"{self._stack.base_url}/v1/messages"
        async with self._session.post(url, json=body, headers=self._headers) as response:
            await response.read()
            return response.status

    async def models(self) -> int:
        """The list; the status."""
        async with self._session.get(f"{self._stack.base_url}/models", headers=self._headers) as response:
            await response.read()
            return response.status


async def timed(call: Awaitable[int]) -> tuple[float, int]:
    """Milliseconds, and the status."""
    began_s = time.perf_counter()
    status = await call
    return (time.perf_counter() - began_s) * 1000, status


async def watch(call: Callable[[], Awaitable[int]], stop: asyncio.Event) -> float:
    """Ask again and again; the longest answer in milliseconds."""
    longest_ms = 0.0
    while not stop.is_set():
        took_ms, _ = await timed(call())
        longest_ms = max(longest_ms, took_ms)
        await asyncio.sleep(INTERVAL_S)
    return longest_ms


async def measure(caller: Caller, name: str, schema: dict[str, Any] | None) -> None:
    """One row of the table."""
    stop = asyncio.Event()
    calls = (caller.models, lambda: caller.ask(None), lambda: caller.ask(AGE))
    watching = asyncio.gather(*(watch(call, stop) for call in calls))
    await asyncio.sleep(AROUND_S)
    answered = "-"
    for number in range(KINDS):
        if schema is not None:
            took_ms, status = await timed(caller.ask(schema | {"description": f"{name} {number}"}))
            answered = f"{status} in {took_ms:.0f} ms"
        else:
            await asyncio.sleep(AROUND_S)
    await asyncio.sleep(AROUND_S)
    stop.set()
    longest = " | ".join(f"{longest_ms:.0f}" for longest_ms in await watching)
    print(f"| {name} | {answered} | {longest} |", flush=True)


async def run(stack: DevStack) -> None:
    """The table."""
    async with aiohttp.ClientSession() as session:
        caller = Caller(stack, session)
        for _ in range(10):
            await asyncio.gather(caller.models(), caller.ask(None), caller.ask(AGE))
        print("| schema | answered | model list | plain | JSON |\n| --- | --- | --- | --- | --- |")
        for name, schema in SCHEMAS.items():
            await measure(caller, name, schema)


def main() -> None:
    """Start the service, measure, end it."""
    with tempfile.TemporaryDirectory() as folder:
        command = DevCommand(Path(folder) / "home", engine="vllm")
        with running_dev(command, within_s=300, settings=SETTINGS) as stack:
            asyncio.run(run(stack))


if __name__ == "__main__":
    main()
