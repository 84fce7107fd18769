"""The program that reads schemas and compiles grammars before vLLM does. It has a tokenizer, and forks for each.

Decides the limits of a guide: processor time and memory to read its schemas, to write them as a grammar and to
compile that, and time for the masks of a few tokens, since the engine's core waits for those. A fork is killed by the
kernel at its limit, wherever its code is. One that takes long goes on at low priority, so that a quick one isn't
slower for it.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from node.engine.grammar import build_structural_tag
from node.engine.guide_text import read_guide
from node.forks.limits import Limits
from node.forks.zygote import serve
from node.wire.schema import require_enforceable
from shared.errors import ApiError

COMPILE_S = 1.0
MASKS_S = 1.0
MEAN_MASK_S = 0.005
LIMITS = Limits(cpu_s=COMPILE_S, wall_s=20.0, patience_s=0.04, memory_bytes=1 << 30, most_answer_bytes=32 << 20)
MOST_GRAMMAR_BYTES = 32 << 20
_WALKS, _STEPS = 4, 32


class Judge:
    """Says what is to be said of guides.

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
        self._tokens_bits = self._bits_of(lambda token: True)
        self._leaving_bits = self._bits_of(lambda token: token[:1] in (b'"', b"<", b"\n", b"/", b">", b","))

    def judge(self, order: bytes) -> bytes:
        """The verdict on the text of a guide, as JSON."""
        return json.dumps(self._judge(order.decode())).encode()

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

    def _bits_of(self, is_wanted: Callable[[bytes], bool]) -> Any:
        """Some tokens as the bits of a mask, whose last byte may have more bits than there are tokens."""
        mask = self._xgrammar.allocate_token_bitmask(1, self._tokens.vocab_size)
        mask.zero_()
        bits = mask.numpy().view("uint8")[0]
        for number, token in enumerate(self._tokens.decoded_vocab):
            if is_wanted(token):
                bits[number // 8] |= 1 << number % 8
        return bits.copy()

    def _walk(self, compiled: Any) -> float:
        """How long a mask takes, in seconds, on a few random ways through the grammar.

        Tokens that are none would end a way, and have xgrammar complain.
        """
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
                allowed = bits & self._tokens_bits
                leaving = allowed & self._leaving_bits if seed % 2 else allowed
                token = _pick(leaving if leaving.any() else allowed, chance)
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


def main() -> None:
    """Serve the model that the arguments name."""
    source, vocabulary = sys.argv[1:]
    # The timer is set anew when the masks' time begins.
    serve(Judge(source, int(vocabulary)).judge, LIMITS, also_allowed={"setitimer"})


if __name__ == "__main__":
    main()
