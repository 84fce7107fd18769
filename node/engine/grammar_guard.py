"""Grammars are compiled in a process that can be killed before vLLM compiles them where it can't be stopped.

Decides what a caller hears of a grammar that is too much, and that each is tried once. Must not know xgrammar; what a
grammar may cost is `grammar_zygote.py`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import struct
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal

from node.engine.dialect.spec import Dialect
from node.engine.grammar import build_structural_tag
from node.engine.port import Guide, Schema, Tool
from node.schema.refusal import invalid, unenforceable
from shared.errors import BACKEND_UNAVAILABLE, ApiError

MOST_VERDICTS = 2048
MOST_WAITING = 64
_START_S = 120.0
_PASSED_ON = frozenset({"PATH", "HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "TMPDIR"})
"""Of the environment; the rest may hold secrets. Hugging Face's are passed on by their prefix."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """It compiles, in so much processor time; a mask takes so long in the mean."""

    build_ms: float
    compile_ms: float
    mask_ms: float


@dataclass(frozen=True, slots=True)
class Refused:
    """It doesn't compile, or not within bounds."""

    why: Literal["invalid", "slow", "large"]


Verdict = Accepted | Refused

_WORDS = {
    "slow": "a schema that takes so long to compile",
    "large": "a schema that takes so much memory to compile",
}


class GrammarGuard:
    """Judges grammars.

    Args:
        source: the model, as vLLM loads its tokenizer. vocabulary: how many tokens its embedding has.
    """

    def __init__(self, source: str, vocabulary: int) -> None:
        self._arguments = (source, str(vocabulary))
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()
        self._running: dict[bytes, asyncio.Task[Verdict]] = {}
        self._process: _Process | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False

    async def start(self) -> None:
        """Have the process ready, which takes seconds. Else the first check waits for it."""
        await self._ready()

    async def check_guide(self, guide: Guide, dialect: Dialect) -> None:
        """Make sure that what an answer must look like can be enforced.

        Raises:
            ApiError: it can't be, or not within bounds; `param` is the path of the schema to blame.
        """
        tag = await asyncio.to_thread(build_structural_tag, guide, dialect, thinks=False)
        if tag is None or isinstance(await self.check(tag), Accepted):
            return
        schemas = guide.promises()
        for schema in schemas:
            alone = await asyncio.to_thread(build_structural_tag, _alone(schema, guide), dialect, thinks=False)
            verdict = Accepted(0, 0, 0) if alone is None else await self.check(alone)
            if isinstance(verdict, Refused):
                raise _refusal(verdict, schema.path)
        raise unenforceable(schemas[0].path, "so many schemas at once")

    async def check(self, tag: dict[str, Any]) -> Verdict:
        """What is to be said of a structural tag."""
        text = json.dumps(tag)
        key = hashlib.sha256(text.encode()).digest()
        if key in self._verdicts:
            self._verdicts.move_to_end(key)
            return self._verdicts[key]
        if key not in self._running:
            if len(self._running) >= MOST_WAITING:
                raise _busy()
            task = self._running[key] = asyncio.create_task(self._judge(key, text))
            task.add_done_callback(_notice)
        # Whoever gives up must not take the verdict from others that wait for it.
        return await asyncio.shield(self._running[key])

    async def close(self) -> None:
        """End the process."""
        self._is_closed = True
        for task in self._running.values():
            task.cancel()
        if self._process is not None:
            await self._process.close()

    async def _judge(self, key: bytes, text: str) -> Verdict:
        try:
            verdict = await self._ask(text)
        finally:
            del self._running[key]
        self._verdicts[key] = verdict
        if len(self._verdicts) > MOST_VERDICTS:
            self._verdicts.popitem(last=False)
        return verdict

    async def _ask(self, text: str) -> Verdict:
        for _ in range(2):
            process = await self._ready()
            with contextlib.suppress(_Gone):
                return await process.ask(text)
        raise _busy()

    async def _ready(self) -> _Process:
        async with self._starting:
            if self._is_closed:
                raise _busy()
            if self._process is None or self._process.is_gone:
                self._process = await _Process.start(*self._arguments)
            return self._process


class _Gone(Exception):
    """The process ended."""


class _Process:
    """A running zygote."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.is_gone = False
        self._process = process
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0
        self._reading = asyncio.create_task(self._read_all())

    @classmethod
    async def start(cls, *arguments: str) -> _Process:
        """One that is ready."""
        kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("HF_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "node.engine.grammar_zygote",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        try:
            await asyncio.wait_for(_read(process), _START_S)
        except BaseException as error:
            await _kill(process)
            if isinstance(error, asyncio.IncompleteReadError | TimeoutError):
                raise _busy() from None
            raise
        return cls(process)

    async def ask(self, text: str) -> Verdict:
        """Its verdict.

        Raises:
            _Gone: it ended first.
        """
        self._count += 1
        number = self._count
        data = json.dumps([number, text]).encode()
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            if self._process.stdin is None or self.is_gone:
                raise _Gone
            self._process.stdin.write(struct.pack("<I", len(data)) + data)
            await self._process.stdin.drain()
            answer = await future
        except ConnectionError:
            raise _Gone from None
        finally:
            del self._answers[number]
        if "refused" in answer:
            return Refused(answer["refused"])
        return Accepted(answer["build_ms"], answer["compile_ms"], answer["mask_ms"])

    async def close(self) -> None:
        """End it."""
        self._reading.cancel()
        await _kill(self._process)

    async def _read_all(self) -> None:
        try:
            while True:
                answer = await _read(self._process)
                waiting = self._answers.get(answer["number"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            self.is_gone = True
            for future in self._answers.values():
                if not future.done():
                    future.set_exception(_Gone())
        await _kill(self._process)


async def _read(process: asyncio.subprocess.Process) -> dict[str, Any]:
    if process.stdout is None:
        raise asyncio.IncompleteReadError(b"", 4)
    (length,) = struct.unpack("<I", await process.stdout.readexactly(4))
    answer: dict[str, Any] = json.loads(await process.stdout.readexactly(length))
    return answer


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()


def _notice(task: asyncio.Task[Verdict]) -> None:
    """So that asyncio doesn't complain of a failure that everybody has given up waiting for."""
    if not task.cancelled():
        task.exception()


def _alone(schema: Schema, guide: Guide) -> Guide:
    """A guide that asks for one schema only."""
    if schema is guide.answer:
        return Guide(answer=schema)
    return Guide(tools=(Tool("f", schema, is_strict=True),), must_call=True, one_call=True)


def _refusal(verdict: Refused, path: str) -> ApiError:
    if verdict.why == "invalid":
        return invalid(path, "this schema can't be compiled")
    return unenforceable(path, _WORDS[verdict.why])


def _busy() -> ApiError:
    return ApiError(
        BACKEND_UNAVAILABLE, "schemas can't be compiled at the moment; retry in 5 seconds", retry_after_s=5
    )
