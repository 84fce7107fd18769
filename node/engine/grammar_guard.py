"""Schemas are read and grammars compiled in a process that can be killed, before vLLM compiles where nothing can be.

Decides what a caller hears of a guide that is too much, and that each is tried once. Must not know xgrammar; what a
guide may cost is `grammar_zygote.py`'s.
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

import orjson

from node.engine.dialect.spec import Dialect
from node.engine.guide_text import write_guide
from node.engine.port import Guide, Schema, Tool
from node.schema.refusal import invalid, unenforceable
from shared.errors import BACKEND_UNAVAILABLE, INVALID_REQUEST, UNSUPPORTED_PARAMETER, ApiError

MOST_VERDICTS = 2048
MOST_KEPT_CHARS = 64 << 20
MOST_SCHEMA_BYTES = 256 << 10
MOST_WAITING = 64
_START_S = 120.0
_PASSED_ON = frozenset({"PATH", "HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "TMPDIR"})
"""Of the environment; the rest may hold secrets. Hugging Face's are passed on by their prefix."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """It compiles, in so much processor time; a mask takes so long in the mean. `tag` is for vLLM."""

    tag: str
    build_ms: float
    compile_ms: float
    mask_ms: float


@dataclass(frozen=True, slots=True)
class Refused:
    """It doesn't compile, or not within bounds."""

    why: Literal["invalid", "slow", "large"]


@dataclass(frozen=True, slots=True)
class Unenforceable:
    """A schema of it says what a model can't be kept to, or is none."""

    code: str
    message: str
    param: str | None


Verdict = Accepted | Refused | Unenforceable

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
        self._kept_chars = 0
        self._running: dict[bytes, asyncio.Task[Verdict]] = {}
        self._process: _Process | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False

    async def start(self) -> None:
        """Have the process ready, which takes seconds. Else the first check waits for it."""
        await self._ready()

    async def tag(self, guide: Guide, dialect: Dialect, *, thinks: bool) -> str | None:
        """The structural tag that keeps an answer to its guide; None where there is nothing to enforce.

        Args:
            thinks: the answer begins with thinking, which the tag then covers too.

        Raises:
            ApiError: it can't be enforced, or not within bounds; `param` is the path of the schema to blame.
        """
        promises = guide.promises()
        if not promises:
            return None
        if sum(len(orjson.dumps(schema.schema)) for schema in promises) > MOST_SCHEMA_BYTES:
            raise unenforceable(promises[-1].path, f"more than {MOST_SCHEMA_BYTES // 1024} KiB of schemas at once")
        verdict = await self.check(guide, dialect, thinks=thinks)
        if isinstance(verdict, Refused):
            for schema in promises if len(promises) > 1 else ():
                alone = await self.check(_alone(schema, guide), dialect, thinks=False)
                if not isinstance(alone, Accepted):
                    raise _refusal(alone, schema.path)
        if not isinstance(verdict, Accepted):
            raise _refusal(verdict, promises[0].path)
        return verdict.tag

    async def check(self, guide: Guide, dialect: Dialect, *, thinks: bool) -> Verdict:
        """What is to be said of a guide."""
        text = write_guide(guide, dialect, thinks=thinks)
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
        self._kept_chars += _weight(verdict)
        while len(self._verdicts) > MOST_VERDICTS or self._kept_chars > MOST_KEPT_CHARS:
            _, oldest = self._verdicts.popitem(last=False)
            self._kept_chars -= _weight(oldest)
        return verdict

    async def _ask(self, text: str) -> Verdict:
        for _ in range(2):
            process = await self._ready()
            with contextlib.suppress(_Gone):
                return await process.ask(text)
        raise _busy()

    async def _ready(self) -> _Process:
        async with self._starting:
            self._check_open()
            if self._process is None or self._process.is_gone:
                process = await _Process.start(*self._arguments)
                try:
                    self._check_open()
                except ApiError:
                    await process.close()
                    raise
                self._process = process
            return self._process

    def _check_open(self) -> None:
        if self._is_closed:
            raise _busy()


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
        if "refusal" in answer:
            return Unenforceable(*answer["refusal"])
        return Accepted(answer["tag"], answer["build_ms"], answer["compile_ms"], answer["mask_ms"])

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


def _weight(verdict: Verdict) -> int:
    return len(verdict.tag) if isinstance(verdict, Accepted) else 0


def _refusal(verdict: Refused | Unenforceable, path: str) -> ApiError:
    if isinstance(verdict, Unenforceable):
        condition = UNSUPPORTED_PARAMETER if verdict.code == UNSUPPORTED_PARAMETER.code else INVALID_REQUEST
        return ApiError(condition, verdict.message, param=verdict.param)
    if verdict.why == "invalid":
        return invalid(path, "this schema can't be compiled")
    return unenforceable(path, _WORDS[verdict.why])


def _busy() -> ApiError:
    return ApiError(
        BACKEND_UNAVAILABLE, "schemas can't be compiled at the moment; retry in 5 seconds", retry_after_s=5
    )
