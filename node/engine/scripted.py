"""An engine that plays canned pieces, for work on everything around a model.

Decides what is played from the last message alone. A text that is a JSON object with a list under `scripted` is a
script, one step after the other:

    ["text", "Hel"]  ["thinking", "Hm"]  ["tool", "get_weather", {"city": "Paris"}]
    ["pause", 0.5]   ["now"]   ["fail"]   ["crash"]   ["repeat", 1000, ["text", "x "]]

`now` is a text with the monotonic clock in nanoseconds, for benchmarks; `fail` raises what a dying engine raises;
`crash` raises a fault of ours. Any other text gets one fixed answer. A token is a word of the prompt, or a step.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from node.engine.port import (
    End,
    Piece,
    Prompt,
    Sampling,
    Started,
    Text,
    Thinking,
    ToolArguments,
    ToolStart,
    Usage,
)
from shared.errors import BACKEND_UNAVAILABLE, PROMPT_TOO_LONG, ApiError

CONTEXT_TOKENS = 1_000_000
ANSWER = ("This ", "answer ", "was ", "scripted: ", "no ", "model ", "was ", "asked.")
Step = list[Any]


@dataclass(frozen=True, slots=True)
class ScriptedPrompt:
    """The steps to play and the length of the prompt in words."""

    prompt_tokens: int
    steps: list[Step]


class ScriptedEngine:
    """Plays scripts; counts what runs, like a real engine."""

    context_tokens = CONTEXT_TOKENS
    special_tokens = frozenset({"<|scripted|>"})

    def __init__(self) -> None:
        self._running = 0
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def render(self, prompt: Prompt) -> ScriptedPrompt:
        """Read the script of the last message."""
        words = sum(len(str(message["content"]).split()) for message in prompt.messages)
        if words >= CONTEXT_TOKENS:
            message = f"prompt is too long: {words} tokens > {CONTEXT_TOKENS - 1} maximum"
            raise ApiError(PROMPT_TOO_LONG, message)
        return ScriptedPrompt(words, _read_steps(str(prompt.messages[-1]["content"])))

    def generate(self, rendered: ScriptedPrompt, sampling: Sampling, request_id: str) -> ScriptedGeneration:
        """Begin to play."""
        del request_id
        return ScriptedGeneration(self, rendered, sampling.max_tokens)

    def unfinished_requests(self) -> int:
        """Generations that were begun and not ended."""
        return self._running

    def count(self, change: int) -> None:
        """A generation began or ended."""
        self._running += change

    async def wait_until_dead(self) -> str:
        """A script never dies by itself."""
        return await self._dead

    async def shutdown(self) -> None:
        """Nothing to end."""


class ScriptedGeneration:
    """One playing of a script."""

    def __init__(self, engine: ScriptedEngine, prompt: ScriptedPrompt, max_tokens: int) -> None:
        self.usage = Usage(input_tokens=prompt.prompt_tokens)
        self._pieces = self._play(engine, prompt.steps, max_tokens)

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._pieces

    async def aclose(self) -> None:
        """Stop playing."""
        await self._pieces.aclose()

    async def _play(self, engine: ScriptedEngine, steps: list[Step], max_tokens: int) -> AsyncGenerator[Piece]:
        engine.count(1)
        try:
            started = False
            for step in _flatten(steps):
                if step[0] == "pause":
                    await asyncio.sleep(step[1])
                    continue
                pieces = _pieces_of(step)
                if not started:
                    started = True
                    yield Started()
                if self.usage.output_tokens == max_tokens:
                    yield End("length")
                    return
                self.usage.output_tokens += 1
                for piece in pieces:
                    yield piece
                await asyncio.sleep(0)
            if not started:
                yield Started()
            yield End("stop")
        finally:
            engine.count(-1)


async def start_scripted_engine() -> ScriptedEngine:
    """A ready engine, at once."""
    return ScriptedEngine()


def _read_steps(text: str) -> list[Step]:
    try:
        script = json.loads(text)
        steps = script["scripted"]
    except (ValueError, TypeError, KeyError):
        return [["text", word] for word in ANSWER]
    return list(steps)


def _flatten(steps: list[Step]) -> Iterator[Step]:
    for step in steps:
        if step[0] == "repeat":
            for _ in range(step[1]):
                yield from _flatten([step[2]])
        else:
            yield step


def _pieces_of(step: Step) -> list[Piece]:
    match step:
        case ["text", str(text)]:
            return [Text(text)]
        case ["thinking", str(text)]:
            return [Thinking(text)]
        case ["tool", str(name), arguments]:
            call_id = f"chatcmpl-tool-{secrets.token_hex(8)}"
            return [ToolStart(call_id, name), ToolArguments(json.dumps(arguments))]
        case ["now"]:
            return [Text(f"{time.monotonic_ns()} ")]
        case ["fail"]:
            raise ApiError(
                BACKEND_UNAVAILABLE, "The model runtime is restarting; retry in 5 seconds", retry_after_s=5
            )
        case _:
            raise RuntimeError(f"not a step of a script: {step!r}")
