"""Schemas are read and grammars compiled in a process that can be killed, before vLLM compiles where nothing can be.

Decides what a caller hears of a guide that is too much, and that each payer's is tried once. Must not know xgrammar;
what a guide may cost is `grammar_zygote.py`'s.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass
from typing import Literal

import orjson

from node.engine.dialect.spec import Dialect
from node.engine.guide_text import write_guide
from node.engine.port import Guide, Schema, Tool
from node.engine.verdicts import Verdicts
from node.forks.messages import Outcome
from node.forks.pool import Busy, Pool
from node.forks.process import Gone, Killed
from node.schema.refusal import invalid, unenforceable
from shared.errors import BACKEND_UNAVAILABLE, INVALID_REQUEST, UNSUPPORTED_PARAMETER, ApiError

MOST_KEPT_BYTES = 64 << 20
MOST_SCHEMA_BYTES = 256 << 10
MOST_WAITING = 64
MOST_FORKS = 6
_START_S = 120.0
_PASSED_ON = frozenset({"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
"""Where models lie; `HF_TOKEN` is a secret, and nothing is fetched."""
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


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
        self._pool = Pool(
            "node.engine.grammar_zygote",
            source,
            str(vocabulary),
            most_forks=MOST_FORKS,
            most_waiting=MOST_WAITING,
            start_s=_START_S,
            passed_on=_PASSED_ON,
            environment=_ENVIRONMENT,
        )
        self._verdicts: Verdicts[Verdict] = Verdicts(MOST_KEPT_BYTES)
        self._running: dict[tuple[str, bytes], asyncio.Task[Verdict]] = {}

    @property
    def pid(self) -> int | None:
        """Of the process that judges."""
        return self._pool.pid

    async def start(self) -> None:
        """Have the process ready, which takes seconds. Else the first check waits for it.

        Raises:
            ApiError: it doesn't start.
        """
        try:
            await self._pool.start()
        except Gone:
            raise _busy() from None

    async def tag(self, guide: Guide, dialect: Dialect, *, thinks: bool, payer: str = "") -> str | None:
        """The structural tag that keeps an answer to its guide; None where there is nothing to enforce.

        Args:
            payer: who asks. Who is next where many wait is who has fewest at work.
            thinks: the answer begins with thinking, which the tag then covers too.

        Raises:
            ApiError: it can't be enforced, or not within bounds; `param` is the path of the schema to blame.
        """
        promises = guide.promises()
        if not promises:
            return None
        text = await asyncio.to_thread(_write, guide, dialect, thinks=thinks)
        if text is None:
            raise unenforceable(promises[-1].path, f"more than {MOST_SCHEMA_BYTES // 1024} KiB of schemas at once")
        verdict = await self._check(text, payer)
        if isinstance(verdict, Refused):
            for schema in promises if len(promises) > 1 else ():
                alone = await self._check(write_guide(_alone(schema, guide), dialect, thinks=False), payer)
                if not isinstance(alone, Accepted):
                    raise _refusal(alone, schema.path)
        if not isinstance(verdict, Accepted):
            raise _refusal(verdict, promises[0].path)
        return verdict.tag

    async def check(self, guide: Guide, dialect: Dialect, *, thinks: bool, payer: str = "") -> Verdict:
        """What is to be said of a guide, however large."""
        return await self._check(write_guide(guide, dialect, thinks=thinks), payer)

    async def _check(self, guide: str, payer: str) -> Verdict:
        text = guide.encode()
        key = hashlib.sha256(text).digest()
        if (known := self._verdicts.get(payer, key)) is not None:
            return known
        if (payer, key) not in self._running:
            task = self._running[payer, key] = asyncio.create_task(self._judge(key, text, payer))
            task.add_done_callback(_notice)
        # Whoever gives up must not take the verdict from others that wait for it.
        return await asyncio.shield(self._running[payer, key])

    async def close(self) -> None:
        """End the process."""
        for task in self._running.values():
            task.cancel()
        await self._pool.close()

    async def _judge(self, key: bytes, text: bytes, payer: str) -> Verdict:
        try:
            verdict = await self._ask(text, payer)
        finally:
            del self._running[payer, key]
        self._verdicts.keep(payer, key, verdict, len(verdict.tag) if isinstance(verdict, Accepted) else 0)
        return verdict

    async def _ask(self, text: bytes, payer: str) -> Verdict:
        try:
            return await self._pool.ask(text, read=_read, payer=payer)
        except Killed as killed:
            return _verdict_on(killed.outcome)
        except (Busy, Gone):
            raise _busy() from None


def _write(guide: Guide, dialect: Dialect, *, thinks: bool) -> str | None:
    """A guide's text, or None where its schemas are too large. Of 10 MB of them that takes 20 ms."""
    if sum(len(orjson.dumps(schema.schema)) for schema in guide.promises()) > MOST_SCHEMA_BYTES:
        return None
    return write_guide(guide, dialect, thinks=thinks)


def _read(answer: bytes) -> Verdict:
    """What the process says, which is ours; its fork may have been taken over, and then says nonsense.

    Raises:
        ApiError: nonsense.
    """
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        raise _busy() from None
    match said:
        case {"refused": "invalid" | "slow" | "large" as why}:
            return Refused(why)
        case {"refusal": [str(code), str(message), str() | None as param]}:
            return Unenforceable(code, message, param)
        case {"tag": str(tag), "build_ms": float(build), "compile_ms": float(compiled), "mask_ms": float(mask)}:
            return Accepted(tag, build, compiled, mask)
        case _:
            raise _busy()


def _verdict_on(outcome: Outcome) -> Verdict:
    """On a guide whose fork has no answer.

    Raises:
        ApiError: that isn't the guide's fault.
    """
    match outcome:
        case Outcome.SLOW | Outcome.LATE:
            return Refused("slow")
        case Outcome.UNABLE:
            raise _busy()
        case Outcome.LARGE:
            return Refused("large")
        case _:
            return Refused("invalid")


def _notice(task: asyncio.Task[Verdict]) -> None:
    """So that asyncio doesn't complain of a failure that everybody has given up waiting for."""
    if not task.cancelled():
        task.exception()


def _alone(schema: Schema, guide: Guide) -> Guide:
    """A guide that asks for one schema only."""
    if schema is guide.answer:
        return Guide(answer=schema)
    return Guide(tools=(Tool("f", schema, is_strict=True),), must_call=True, one_call=True)


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
