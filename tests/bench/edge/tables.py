"""How a run is told: Markdown tables, the machine, the versions, and what else went on.

Must not know how anything is measured.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import psutil

from shared.cli.dev.redis_server import find_redis_server


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A sentence above, a blank line around."""
    print(f"\n{title}\n")
    for cells in (head, ["---"] * len(head), *rows):
        print("|", " | ".join(cells), "|", flush=True)


def describe_machine() -> str:
    """Cores, processor, system."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(": ")[2] if names else platform.machine()
    return f"{psutil.cpu_count()} cores of {model}, {platform.platform()}"


def describe_versions() -> str:
    """Of what is measured."""
    told = subprocess.run([find_redis_server(), "--version"], capture_output=True, text=True, check=True).stdout
    redis = next(word.removeprefix("v=") for word in told.split() if word.startswith("v="))
    packages = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "uvloop", "pyjwt"))
    return f"Python {platform.python_version()}, {packages}, Redis {redis}"


def describe_load() -> str:
    """How busy the machine was within the last minute, this run's own share included."""
    return f"load {os.getloadavg()[0]:.1f}"
