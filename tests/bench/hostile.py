"""What a hostile schema or body costs the others: `python -m tests.bench.hostile [WORD]`, for rows with a word.

The whole service with the tiny model. Three callers of one organization ask every 20 ms, for the list of models, for
one token, and for one token of JSON, while another organization sends three new schemas of a kind, or a dozen bodies
of a kind, six at a time. Prints the longest answer of each in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from tests.contract.people import b3os_admin
from tests.e2e.stack import ROOT, DevCommand, DevStack, running_dev

SETTINGS = {
    "B3OS_MODEL": str(ROOT / "tests" / "models" / "tiny-vision"),
    "B3OS_MODEL_REASONING_PARSER": "qwen3",
    "B3OS_MODEL_TOOL_PARSER": "qwen3_coder",
}
INTERVAL_S, AROUND_S, KINDS = 0.02, 0.5, 3
BODIES_AT_ONCE, BODY_ROUNDS = 6, 2


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
TEXT = {"type": "text", "text": "x"}


def saying(content: Any) -> dict[str, Any]:
    """The field of a body that has one turn."""
    return {"messages": [{"role": "user", "content": content}]}


def calling(value: Any) -> dict[str, Any]:
    """The same for a call with such an input, and its result."""
    call = {"type": "tool_use", "id": "a", "name": "f", "input": value}
    result = {"type": "tool_result", "tool_use_id": "a"}
    return {"messages": [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]}


BODIES: dict[str, dict[str, Any]] = {
    "19,000 blocks": saying([TEXT] * 19_000),
    "19,000 blocks with cache_control": saying([TEXT | {"cache_control": {"type": "ephemeral"}}] * 19_000),
    "10 MB of text": saying("word " * 2_080_000),
    "10 MB of escapes": saying("\n" * 5_200_000),
    "140,000 keys": calling({f"{number:x}": number for number in range(140_000)}),
    "700,000 keys": calling({f"{number:x}": number for number in range(700_000)}),
    "5,000,000 numbers": calling({"a": [1] * 5_000_000}),
    "200 patterns": {
        "output_config": {
            "format": {
                "type": "json_schema",
                "schema": of({f"p{number}": {"type": "string", "pattern": "^.{2000}$"} for number in range(200)}),
            }
        }
    },
}


class Caller:
    """Sends requests to one stack."""

    def __init__(self, stack: DevStack, session: aiohttp.ClientSession, key: str) -> None:
        self._stack, self._session = stack, session
        self._headers = {"Authorization": f"Bearer {key}"}

    async def ask(self, schema: dict[str, Any] | None) -> int:
        """One token, as JSON of a schema if there is one; the status."""
        body: dict[str, Any] = {
            "model": self._stack.model,
            "max_tokens": 1,
            "messages": [{"role": "user", "content": "Say: red"}],
        }
        if schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return await self.send(json.dumps(body).encode())

    async def send(self, body: bytes) -> int:
        """The status of the answer to a body."""
        headers = self._headers | {"Content-Type": "application/json"}
        async with self._session.post(f"{self._stack.base_url}/v1/messages", data=body, headers=headers) as response:
            await response.read()
            return response.status

    def body(self, fields: dict[str, Any]) -> bytes:
        """One that asks for one token."""
        said = {"model": self._stack.model, "max_tokens": 1, **saying("Say: red"), **fields}
        return json.dumps(said, separators=(",", ":")).encode()

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


async def send_schemas(caller: Caller, name: str, schema: dict[str, Any] | None) -> str:
    """New ones of a kind, one after the other; how the last was answered."""
    answered = "-"
    for number in range(KINDS):
        if schema is not None:
            took_ms, status = await timed(caller.ask(schema | {"description": f"{name} {number}"}))
            answered = f"{status} in {took_ms:.0f} ms"
        else:
            await asyncio.sleep(AROUND_S)
    return answered


async def send_bodies(caller: Caller, body: bytes) -> str:
    """Some at a time; how the last were answered."""
    answered: list[tuple[float, int]] = []
    for _ in range(BODY_ROUNDS):
        answered = await asyncio.gather(*(timed(caller.send(body)) for _ in range(BODIES_AT_ONCE)))
    statuses = {status for _, status in answered}
    return f"{', '.join(map(str, sorted(statuses)))} in {max(took_ms for took_ms, _ in answered):.0f} ms"


def make_key(stack: DevStack) -> str:
    """The key of another organization."""
    b3os_admin(stack, "org", "create", "hostile")
    b3os_admin(stack, "project", "create", "hostile", "p")
    made = b3os_admin(stack, "keys", "create", "--org=hostile", "--project=p", "--name=k", "--json")
    key: str = json.loads(made)["key"]
    return key


async def measure(caller: Caller, name: str, attack: Callable[[], Awaitable[str]]) -> None:
    """One row of the table."""
    stop = asyncio.Event()
    calls = (caller.models, lambda: caller.ask(None), lambda: caller.ask(AGE))
    watching = asyncio.gather(*(watch(call, stop) for call in calls))
    await asyncio.sleep(AROUND_S)
    answered = await attack()
    await asyncio.sleep(AROUND_S)
    stop.set()
    longest = " | ".join(f"{longest_ms:.0f}" for longest_ms in await watching)
    print(f"| {name} | {answered} | {longest} |", flush=True)


async def run(stack: DevStack, word: str) -> None:
    """The table, or its rows with a word."""
    async with aiohttp.ClientSession() as session:
        caller = Caller(stack, session, stack.api_key)
        hostile = Caller(stack, session, make_key(stack))
        for _ in range(10):
            await asyncio.gather(caller.models(), caller.ask(None), caller.ask(AGE))
        print("| what | answered | model list | plain | JSON |\n| --- | --- | --- | --- | --- |")
        for name, schema in ((name, schema) for name, schema in SCHEMAS.items() if word in name):
            await measure(caller, name, partial(send_schemas, hostile, name, schema))
        for name, fields in ((name, fields) for name, fields in BODIES.items() if word in name):
            await measure(caller, name, partial(send_bodies, hostile, hostile.body(fields)))


def main() -> None:
    """Start the service, measure, end it."""
    with tempfile.TemporaryDirectory() as folder:
        command = DevCommand(Path(folder) / "home", engine="vllm")
        with running_dev(command, within_s=300, settings=SETTINGS) as stack:
            asyncio.run(run(stack, sys.argv[1] if len(sys.argv) > 1 else ""))


if __name__ == "__main__":
    main()
