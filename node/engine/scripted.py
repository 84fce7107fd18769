"""An engine that plays canned pieces, for work on everything around a model.

Decides what is played from the last script of the conversation: a JSON object in a text of the user's side.

    {"scripted": [step, step, ...]}        one answer, to the turn that holds it
    {"turns": [[step, ...], [step, ...]]}  one answer after the other, for agents that go on with results

    ["text", "Hel"]  ["thinking", "Hm"]  ["tool", "get_weather", {"city": "Paris"}]  ["cut", "get_weather", "{\"ci"]
    ["pause", 0.5]   ["now"]   ["fail"]   ["crash"]   ["die"]   ["hang"]   ["repeat", 1000, ["text", "x "]]

`now` is a text with the monotonic clock in nanoseconds, for benchmarks; `cut` is a call that runs out of tokens;
`fail` raises what a dying engine raises; `crash` raises a fault of ours; `die` ends the engine and all that it plays;
at `hang` it computes nothing any more, for anybody. Without a script the answer is fixed, or made up where a request
asks for a call or for JSON. A token is a word of the prompt, or a step.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from node.catalog.served import ServedModel
from node.engine.port import (
    ANY_SIDE_PX,
    End,
    EngineLoad,
    Guide,
    Piece,
    Prompt,
    Sampling,
    Started,
    Text,
    Thinking,
    ToolArguments,
    ToolEnd,
    ToolStart,
    Usage,
)
from node.engine.sample import make_up
from node.schema.conformance import Conformance
from node.wire.schema import require_enforceable
from shared.errors import BACKEND_UNAVAILABLE, PROMPT_TOO_LONG, UNSUPPORTED_PARAMETER, ApiError, retry_in

CONTEXT_TOKENS = 1_000_000
ANSWER = ("This ", "answer ", "was ", "scripted: ", "no ", "model ", "was ", "asked.")
Step = list[Any]
_FOR_EVER_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ScriptedPrompt:
    """The steps to play, if there is a script, and the length of the prompt in words."""

    prompt_tokens: int
    steps: list[Step] | None


class ScriptedEngine:
    """Plays scripts; counts what runs, like a real engine.

    Args:
        places: how many it plays at once; the others wait in its queue.
    """

    context_tokens = CONTEXT_TOKENS
    special_tokens = frozenset({"<|scripted|>"})
    max_image_side_px = ANY_SIDE_PX
    takes_tools = True

    def __init__(self, places: int = 1_000_000) -> None:
        self._held = self._running = self._steps = self._answers = 0
        self._room = asyncio.Semaphore(places)
        self._hangs = False
        self.back_in_s: Callable[[], int] = lambda: 5
        self._sleepers: set[asyncio.Future[None]] = set()
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def render(self, prompt: Prompt) -> ScriptedPrompt:
        """Find the script."""
        words = sum(len(_text_of(message).split()) for message in prompt.messages)
        if words >= CONTEXT_TOKENS:
            message = f"prompt is too long: {words} tokens > {CONTEXT_TOKENS - 1} maximum"
            raise ApiError(PROMPT_TOO_LONG, message)
        return ScriptedPrompt(words, _find_steps(prompt.messages))

    async def check_guide(self, rendered: ScriptedPrompt, guide: Guide) -> None:
        """Refuse schemas for which nothing comes to mind. There is no guard here: this engine is for development."""
        del rendered
        await asyncio.to_thread(_check_promises, guide)
        for schema in guide.promises():
            if not Conformance(schema.schema).holds(make_up(schema.schema)):
                message = f"{schema.path}: the scripted engine can't make up a value for this schema"
                raise ApiError(UNSUPPORTED_PARAMETER, message, param=schema.path)

    def generate(
        self, rendered: ScriptedPrompt, guide: Guide, sampling: Sampling, request_id: str
    ) -> ScriptedGeneration:
        """Begin to play."""
        del request_id
        steps = rendered.steps if rendered.steps is not None else _steps_for(guide)
        return ScriptedGeneration(self, rendered.prompt_tokens, steps, guide, sampling.max_tokens)

    def unfinished_requests(self) -> int:
        """Generations that were begun and not ended."""
        return self._held

    def load(self) -> EngineLoad:
        """A pause is work: between two looks there is always a step, unless it hangs."""
        self._steps += not self._hangs
        return EngineLoad(self._running, self._held - self._running, None, self._steps, self._answers)

    def hang(self) -> None:
        """Compute nothing any more."""
        self._hangs = True

    def count_answer(self) -> None:
        """One has begun."""
        self._answers += 1

    @contextlib.asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it."""
        self._held += 1
        try:
            while self._room.locked():
                await self.rest(0.01)
            async with self._room:
                self._running += 1
                try:
                    yield
                finally:
                    self._running -= 1
        finally:
            self._held -= 1

    async def rest(self, seconds: float) -> None:
        """Pass time, as long as the engine lives."""
        self.require_life()
        loop = asyncio.get_running_loop()
        sleeper = loop.create_future()
        self._sleepers.add(sleeper)
        alarm = loop.call_later(seconds, _wake, sleeper)
        try:
            await sleeper
        finally:
            alarm.cancel()
            self._sleepers.discard(sleeper)
        self.require_life()

    def require_life(self) -> None:
        """Refuse to go on when the engine is dead."""
        if self._dead.done():
            raise _gone(self.back_in_s())

    async def wait_until_dead(self) -> str:
        """A script dies where it says so."""
        return await asyncio.shield(self._dead)

    async def kill(self, cause: str = "it was killed") -> None:
        """What is played fails."""
        if not self._dead.done():
            self._dead.set_result(cause)
        for sleeper in self._sleepers:
            _wake(sleeper)

    async def shutdown(self) -> None:
        """As `kill`."""
        await self.kill("it was shut down")


class ScriptedGeneration:
    """One playing of a script."""

    def __init__(
        self, engine: ScriptedEngine, prompt_tokens: int, steps: list[Step], guide: Guide, max_tokens: int
    ) -> None:
        self.usage = Usage(input_tokens=prompt_tokens)
        self._pieces = self._play(engine, steps, guide, max_tokens)

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._pieces

    async def aclose(self) -> None:
        """Stop playing."""
        await self._pieces.aclose()

    async def _play(
        self, engine: ScriptedEngine, steps: list[Step], guide: Guide, max_tokens: int
    ) -> AsyncGenerator[Piece]:
        async with engine.playing():
            started = False
            for step in _flatten(steps):
                if step[0] in _OF_ENGINE:
                    await _OF_ENGINE[step[0]](engine, step)
                    continue
                pieces = _pieces_of(step)
                if not started:
                    started = True
                    engine.count_answer()
                    yield Started()
                if self.usage.output_tokens == max_tokens:
                    yield End("length")
                    return
                self.usage.output_tokens += 1
                for piece in pieces:
                    yield piece
                if isinstance(pieces[-1], End):
                    return
                if guide.one_call and isinstance(pieces[-1], ToolEnd):
                    break
                await asyncio.sleep(0)
                engine.require_life()
            if not started:
                engine.count_answer()
                yield Started()
            yield End("stop")


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


async def _hang(engine: ScriptedEngine, step: Step) -> None:
    del step
    engine.hang()
    await engine.rest(_FOR_EVER_S)


async def _die(engine: ScriptedEngine, step: Step) -> None:
    del step
    await engine.kill("a script said so")
    engine.require_life()


async def _pause(engine: ScriptedEngine, step: Step) -> None:
    await engine.rest(step[1])


_OF_ENGINE = {"pause": _pause, "hang": _hang, "die": _die}


async def start_scripted_engine(model: ServedModel) -> ScriptedEngine:
    """A ready engine, at once; of vLLM's arguments it knows `max_num_seqs`."""
    return ScriptedEngine(**({"places": model.engine["max_num_seqs"]} if "max_num_seqs" in model.engine else {}))


def _gone(seconds: int) -> ApiError:
    message = f"The model runtime is restarting; {retry_in(seconds)}"
    return ApiError(BACKEND_UNAVAILABLE, message, retry_after_s=seconds)


def _text_of(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _find_steps(messages: Sequence[Mapping[str, Any]]) -> list[Step] | None:
    """The steps of this turn: the answers after the script say how many turns of it were played."""
    played = 0
    for message in reversed(messages):
        if message["role"] == "assistant":
            played += 1
        elif (script := _read_script(_text_of(message))) is not None:
            turns = script.get("turns", [script.get("scripted")])
            return turns[played] if played < len(turns) and isinstance(turns[played], list) else None
    return None


def _read_script(text: str) -> dict[str, Any] | None:
    for name in ("scripted", "turns"):
        start = text.find(f'{{"{name}"')
        if start >= 0:
            try:
                return dict(json.JSONDecoder().raw_decode(text, start)[0])
            except ValueError:
                return None
    return None


def _check_promises(guide: Guide) -> None:
    for schema in guide.promises():
        require_enforceable(schema.schema, schema.path, is_input=schema is not guide.answer)


def _steps_for(guide: Guide) -> list[Step]:
    if guide.must_call:
        return [["tool", guide.tools[0].name, make_up(guide.tools[0].schema.schema)]]
    if guide.answer is not None:
        return [["text", json.dumps(make_up(guide.answer.schema))]]
    return [["text", word] for word in ANSWER]


def _flatten(steps: list[Step]) -> Iterator[Step]:
    for step in steps:
        if step[0] == "repeat":
            for _ in range(step[1]):
                yield from _flatten([step[2]])
        else:
            yield step


def _cut(arguments: str) -> list[Piece]:
    """In pieces, as a model writes."""
    return [ToolArguments(arguments[start : start + 8]) for start in range(0, len(arguments), 8)]


def _pieces_of(step: Step) -> list[Piece]:
    match step:
        case ["text", str(text)]:
            return [Text(text)]
        case ["thinking", str(text)]:
            return [Thinking(text)]
        case ["tool", str(name), arguments]:
            call_id = f"chatcmpl-tool-{secrets.token_hex(8)}"
            return [ToolStart(call_id, name), *_cut(json.dumps(arguments, allow_nan=False)), ToolEnd()]
        case ["cut", str(name), str(arguments)]:
            return [ToolStart(f"chatcmpl-tool-{secrets.token_hex(8)}", name), *_cut(arguments), End("length")]
        case ["now"]:
            return [Text(f"{time.monotonic_ns()} ")]
        case ["fail"]:
            raise _gone(5)
        case _:
            raise RuntimeError(f"not a step of a script: {step!r}")
