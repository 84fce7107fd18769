"""What splitting costs a token, by what the token is part of and by how much came before it.

Run as `python -m tests.bench.splitter`. A figure that grows with the length is a fault.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator

from node.engine.dialect import Dialect, Splitter
from node.engine.port import Schema, Tool

TOKEN_CHARS = 4
LENGTHS = (500, 5000)
THINKING = ("<think>", "</think>")
HERMES = Dialect(thinking=THINKING, tools="hermes")
QWEN = Dialect(thinking=THINKING, tools="qwen3_coder")
WRITE = Tool("write", Schema({"properties": {"file": {"type": "string"}, "rows": {"type": "array"}}}, "tools.0"))

CODE = 'def area(width, height):\n    """What <b>it</b> covers."""\n    return width * height\n\n\n'
PROSE = "The quick brown fox jumps over the lazy dog, twice.\n\nThen it rests. "
ROWS = '{"id": 17, "tags": ["a", "b"], "open": true}, '


def filled(text: str, tokens: int) -> str:
    """Text of a length."""
    return (text * (tokens * TOKEN_CHARS // len(text) + 1))[: tokens * TOKEN_CHARS]


def answers(tokens: int) -> Iterator[tuple[str, Dialect, bool, str]]:
    """A name, a dialect, whether the answer begins with thinking, and the answer."""
    yield "text", HERMES, False, filled(PROSE, tokens)
    yield "thinking", HERMES, True, filled(PROSE, tokens)
    arguments = json.dumps({"file": filled(CODE, tokens)})
    yield "hermes, a file", HERMES, False, f'<tool_call>\n{{"name": "write", "arguments": {arguments}}}\n</tool_call>'
    rows = "[" + filled(ROWS, tokens).rpartition("}")[0] + "}]"
    arguments = json.dumps({"rows": json.loads(rows)})
    yield "hermes, rows", HERMES, False, f'<tool_call>\n{{"name": "write", "arguments": {arguments}}}\n</tool_call>'
    for name, value in (("file", filled(CODE, tokens)), ("rows", rows)):
        call = f"<function=write>\n<parameter={name}>\n{value}\n</parameter>\n</function>"
        yield f"qwen3_coder, {name}", QWEN, False, f"<tool_call>\n{call}\n</tool_call>"


def measure_us(dialect: Dialect, begins_thinking: bool, answer: str) -> float:
    """Microseconds of processor time per token, the best of a few runs."""
    tokens = [answer[start : start + TOKEN_CHARS] for start in range(0, len(answer), TOKEN_CHARS)]
    best = float("inf")
    for _ in range(5):
        splitter = Splitter(
            dialect=dialect,
            begins_thinking=begins_thinking,
            tools=[WRITE],
            one_call=False,
            new_call_id=lambda: "toolu_1",
        )
        gc.collect()
        began = time.process_time()
        for token in tokens:
            splitter.feed(token)
        splitter.finish("stop")
        best = min(best, time.process_time() - began)
    return best / len(tokens) * 1e6


def main() -> None:
    """Print a line for each kind of token."""
    print("us per token".ljust(22) + "".join(f"{tokens:>8}" for tokens in LENGTHS))
    table = [list(answers(tokens)) for tokens in LENGTHS]
    for row in zip(*table, strict=True):
        figures = "".join(f"{measure_us(*answer):>8.1f}" for _, *answer in row)
        print(f"{row[0][0]:<22}{figures}")


if __name__ == "__main__":
    main()
