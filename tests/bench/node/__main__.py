"""`make bench-node`: print both tables. `python -m tests.bench.node cpu` and `... served` print one."""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import uvloop

from node.catalog.served import ServedModel
from tests.bench.node.canned import MODEL_ID, ROOT
from tests.bench.node.cpu import CpuRow, measure_cpu
from tests.bench.node.served import ServedTable, measure_served

TINY = ROOT / "tests" / "models" / "tiny-vision"
PROMPTS = ("Count to 100", "Count to 150", "Count to 9999 and then back")
"""It was taught to count to 60 and goes on until it is cut."""


def main(parts: Sequence[str]) -> None:
    """Measure and print."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that what was started is stopped
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    print(f"On {_machine()}.")
    if "cpu" in parts:
        show_cpu(uvloop.run(measure_cpu()))
    if "served" in parts:
        show_served(measure_served(tiny_model(), PROMPTS))


def tiny_model() -> ServedModel:
    """The tiny model with room for all streams at once."""
    return ServedModel(
        MODEL_ID,
        "Bench",
        str(TINY),
        context_tokens=4096,
        reasoning_parser="qwen3",
        tool_parser="qwen3_coder",
        # Said, since vLLM's defaults depend on how it is started.
        engine={"max_num_seqs": 32, "max_num_batched_tokens": 4096},
    )


def show_cpu(rows: Sequence[CpuRow]) -> None:
    """CPU per token."""
    print("\nCPU from the engine's output to bytes for the socket, in µs per token:\n")
    _print_row("answer", "tokens", "b3os node", "vLLM's server", "times")
    _print_row(*["---"] * 5)
    for row in rows:
        _print_row(row.case, str(row.tokens), f"{row.ours_us:.1f}", f"{row.theirs_us:.1f}", f"{row.ratio:.1f}")


def show_served(table: ServedTable) -> None:
    """First tokens and throughput."""
    print("\nThe tiny model behind both, the same prompts:\n")
    _print_row("streams", "server", "first token, median", "p95", "tokens/s", "CPU per token", "tokens")
    _print_row(*["---"] * 7)
    for streams, loads in table.items():
        for name, load in loads.items():
            first = (f"{load.median_ms:.1f} ms", f"{load.p95_ms:.1f} ms")
            rates = (f"{load.tokens_per_s:.0f}", f"{load.cpu_us_per_token:.0f} µs")
            _print_row(str(streams), name, *first, *rates, str(load.tokens))


def _print_row(*cells: str) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def _machine() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(": ")[2] if names else platform.machine()
    return f"{psutil.cpu_count()} cores of {model}, {platform.platform()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main(sys.argv[1:] or ("cpu", "served"))
    sys.stdout.flush()
    os._exit(0)  # an orderly end of the interpreter lists what the libraries under vLLM leak, on a page
