"""The process that reads schemas and compiles grammars before vLLM does. It has a tokenizer, and forks for each.

Decides the limits of a guide: processor time and memory to read its schemas, to write them as a grammar and to
compile that, and time for the masks of a few tokens, since the engine's core waits for those. A fork is killed by the
kernel at its limit, wherever its code is. One that takes long goes on at low priority, so that a quick one isn't
slower for it.

Runs as `python -m`, and ends when its standard input does: with the process that started it. It has one thread, which
is what makes forks of it safe.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import resource
import select
import signal
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any

from node.engine.grammar import build_structural_tag
from node.engine.guide_text import read_guide
from node.wire.schema import require_enforceable
from shared.errors import ApiError

COMPILE_S = 1.0
MASKS_S = 1.0
MEAN_MASK_S = 0.005
WALL_S = 20.0
PATIENCE_S = 0.04
"""At full priority."""
MEMORY_BYTES = 1 << 30
MOST_FORKS = 6
MOST_GRAMMAR_BYTES = 32 << 20
_WALKS, _STEPS = 4, 32
_LOW_PRIORITY = 15
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Fork:
    """One grammar at work."""

    number: int
    pid: int
    pipe: int
    started_s: float
    is_slow: bool = False


class Zygote:
    """Serves its standard input.

    Args:
        source: the model whose tokenizer is used. vocabulary: how many tokens its embedding has.
    """

    def __init__(self, source: str, vocabulary: int) -> None:
        import xgrammar
        from transformers import AutoTokenizer

        self._xgrammar: Any = xgrammar
        tokenizer = AutoTokenizer.from_pretrained(source)
        self._tokens = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary)
        self._compile("root ::= [a-z]*")  # what is only loaded when first needed
        self._leaving = self._find_leaving()
        self._forks: dict[int, Fork] = {}
        self._waiting: list[tuple[int, str]] = []

    def serve(self) -> None:
        """Until the input ends."""
        _send(sys.stdout.fileno(), {"ready": True})
        while True:
            timeout = PATIENCE_S if self._forks else None
            readable, _, _ = select.select([sys.stdin.fileno(), *self._forks], [], [], timeout)
            for pipe in readable:
                if pipe in self._forks:
                    self._finish(self._forks.pop(pipe))
                elif not self._receive():
                    return
            self._watch()
            while self._waiting and len(self._forks) < MOST_FORKS:
                self._fork(*self._waiting.pop(0))

    def close(self) -> None:
        """End what still runs."""
        for fork in self._forks.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(fork.pid, signal.SIGKILL)

    def _receive(self) -> bool:
        head = _read(4)  # never more than it needs: what a buffer holds, `select` doesn't see
        data = _read(struct.unpack("<I", head)[0]) if len(head) == 4 else b""
        if not data:
            return False
        number, order = json.loads(data)
        self._waiting.append((number, order))
        return True

    def _fork(self, number: int, order: str) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                _limit()
                _send(writer, self._judge(order))
            finally:
                os._exit(0)
        os.close(writer)
        self._forks[reader] = Fork(number, pid, reader, time.monotonic())

    def _finish(self, fork: Fork) -> None:
        answer = b""
        while part := os.read(fork.pipe, 65_536):
            answer += part
        os.close(fork.pipe)
        _, status = os.waitpid(fork.pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL, signal.SIGXCPU)
        verdict = json.loads(answer[4:]) if answer else {"refused": "slow" if killed else "large"}
        _send(sys.stdout.fileno(), {"number": fork.number, **verdict})

    def _watch(self) -> None:
        now = time.monotonic()
        for fork in self._forks.values():
            if now - fork.started_s > WALL_S:
                os.kill(fork.pid, signal.SIGKILL)
            elif now - fork.started_s > PATIENCE_S and not fork.is_slow:
                fork.is_slow = True
                with contextlib.suppress(OSError, AttributeError):
                    os.setpriority(os.PRIO_PROCESS, fork.pid, _LOW_PRIORITY)
                    # Only where nobody else wants the processor: the engine's threads wait for each other.
                    os.sched_setscheduler(fork.pid, os.SCHED_IDLE, os.sched_param(0))

    def _judge(self, order: str) -> dict[str, Any]:
        try:
            guide, dialect, thinks = read_guide(order)
            for schema in guide.promises():
                require_enforceable(schema.schema, schema.path, is_input=schema is not guide.answer)
            tag = json.dumps(build_structural_tag(guide, dialect, thinks=thinks))
        except ApiError as refusal:
            return {"refusal": [refusal.condition.code, refusal.message, refusal.param]}
        except (RecursionError, MemoryError):
            return {"refused": "large"}
        return self._compiled(tag)

    def _compiled(self, tag: str) -> dict[str, Any]:
        start = time.process_time()
        try:
            self._xgrammar.Grammar.from_structural_tag(tag)
            built = time.process_time()
            compiled = self._compile_tag(tag)
        except MemoryError:
            return {"refused": "large"}
        except Exception as error:
            return {"refused": "large" if "bad_alloc" in str(error) else "invalid"}
        compile_s = time.process_time() - built
        if compiled.memory_size_bytes > MOST_GRAMMAR_BYTES:
            return {"refused": "large"}
        signal.setitimer(signal.ITIMER_PROF, MASKS_S)
        mask_s = self._walk(compiled)
        if mask_s > MEAN_MASK_S:
            return {"refused": "slow"}
        times = {"build_ms": built - start, "compile_ms": compile_s, "mask_ms": mask_s}
        return {"tag": tag, **{name: round(seconds * 1000, 3) for name, seconds in times.items()}}

    def _compile(self, grammar: str) -> Any:
        return self._compile_tag(
            json.dumps({"type": "structural_tag", "format": {"type": "grammar", "grammar": grammar}})
        )

    def _compile_tag(self, tag: str) -> Any:
        compiler = self._xgrammar.GrammarCompiler(self._tokens, max_threads=1, cache_enabled=False)
        return compiler.compile_structural_tag(tag)

    def _find_leaving(self) -> Any:
        """The tokens that may end a free text, as the bits of a mask."""
        mask = self._xgrammar.allocate_token_bitmask(1, self._tokens.vocab_size)
        mask.zero_()
        bits = mask.numpy().view("uint8")[0]
        for number, token in enumerate(self._tokens.decoded_vocab):
            if token[:1] in (b'"', b"<", b"\n", b"/", b">", b","):
                bits[number // 8] |= 1 << number % 8
        return bits.copy()

    def _walk(self, compiled: Any) -> float:
        """How long a mask takes, in seconds, on a few random ways through the grammar."""
        steps, start = 1, time.process_time()
        mask = self._xgrammar.allocate_token_bitmask(1, self._tokens.vocab_size)
        bits = mask.numpy().view("uint8")[0]
        for seed in range(_WALKS):
            chance = random.Random(seed)  # noqa: S311 - the same ways each time, so that verdicts are
            matcher = self._xgrammar.GrammarMatcher(compiled)
            for _ in range(_STEPS):
                matcher.fill_next_token_bitmask(mask)
                steps += 1
                # Text that is free would keep a walk for ever: every other one leaves it when it can.
                leaving = bits & self._leaving if seed % 2 else bits
                token = _pick(leaving if leaving.any() else bits, chance)
                if token is None or not matcher.accept_token(token) or matcher.is_terminated():
                    break
        return (time.process_time() - start) / steps


def _pick(bits: Any, chance: random.Random) -> int | None:
    """A token that a mask allows."""
    (allowed,) = bits.nonzero()
    if not len(allowed):
        return None
    index = int(allowed[chance.randrange(len(allowed))])
    byte = int(bits[index])
    return index * 8 + chance.choice([bit for bit in range(8) if byte >> bit & 1])


def _limit() -> None:
    """What a fork may use. It also goes with this process."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.setitimer(signal.ITIMER_PROF, COMPILE_S)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, size + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size and (part := os.read(sys.stdin.fileno(), size - len(data))):
        data += part
    return data


def _send(pipe: int, answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode()
    data = struct.pack("<I", len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


def main() -> None:
    """Serve the model that the arguments name."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, vocabulary = sys.argv[1:]
    zygote = Zygote(source, int(vocabulary))
    try:
        zygote.serve()
    finally:
        zygote.close()


if __name__ == "__main__":
    main()
