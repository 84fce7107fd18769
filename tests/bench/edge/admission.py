"""What a node's limits add to a request: the node's own code on a real Redis, without the rest of the node.

Decides which steps are timed. Until the first token a request waits for its admission and for its adjustment to the
rendered prompt; a whole answer also waits for its bill, a stream's last event doesn't.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from node.engine.port import Usage
from node.limits.limiter import Limits, Needs, SpendCap, Subject, Unavailable
from node.limits.opening import open_limits
from node.limits.prices import Price
from node.limits.settlement import Desk, Reservation
from shared.ids import new_request_id
from tests.e2e.stack import ROOT
from tests.redis_server import running_redis

STEPS = ("admission", "adjustment", "bill")
WARM_UP = 100
LIMITS = Limits(10**9, 10**12, 10**12, 10**6)
"""All are set, so that all are counted; none is ever reached."""


@dataclass(slots=True)
class Steps:
    """Milliseconds of each step, in the order of the requests, and what all of them cost this process.

    Attributes:
        refused: because Redis didn't answer in time; on a machine that others keep busy even an idle one may not.
    """

    values_ms: Mapping[str, list[float]] = field(default_factory=lambda: {step: [] for step in STEPS})
    cpu_us: float = 0.0
    refused: int = 0

    def sums_ms(self, *steps: str) -> list[float]:
        """What each request waited for these steps together."""
        return [sum(each) for each in zip(*(self.values_ms[step] for step in steps), strict=True)]


async def measure_admission(rate_per_s: float, count: int, model_s: float) -> Steps:
    """Requests at a fixed rate, then as many without pause for their CPU; the model takes `model_s` after a first
    token, when a node tells Redis that there is something to bill.
    """
    with tempfile.TemporaryDirectory() as name, running_redis(Path(name) / "redis") as url:
        async with open_limits(url, Path(name) / "spool", "n1") as (desk, _):
            for _ in range(WARM_UP):
                await _one(desk, Steps(), model_s)
            steps, running, begun_s = Steps(), set[asyncio.Task[None]](), time.perf_counter()
            for number in range(count):
                await asyncio.sleep(max(0, begun_s + number / rate_per_s - time.perf_counter()))
                task = asyncio.create_task(_one(desk, steps, model_s))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.gather(*running)
            begun_cpu_s = time.process_time()
            for _ in range(count):
                await _one(desk, Steps(), model_s)
            steps.cpu_us = (time.process_time() - begun_cpu_s) / count * 1e6
            return steps


async def _one(desk: Desk, steps: Steps, model_s: float) -> None:
    price, cap = Price(3, 15), SpendCap(2**52, "month")
    subject = Subject(new_request_id(), "bench", "main", "key_1", "b3os/bench", "n1", price, LIMITS, cap)
    times = [time.perf_counter()]
    reservation = await desk.open(subject, Needs(2000, 30_000))
    if not isinstance(reservation, Reservation):
        assert isinstance(reservation, Unavailable), reservation
        steps.refused += 1
        return
    async with reservation:
        times.append(time.perf_counter())
        await reservation.adjust(Needs(1200, 20_000))
        times.append(time.perf_counter())
        reservation.follow(Usage(900, 300))
        reservation.note_prefilled()
        await asyncio.sleep(model_s)
        times.append(time.perf_counter())
    times.append(time.perf_counter())
    for step, begun in zip(STEPS, (0, 1, 3), strict=True):
        steps.values_ms[step].append((times[begun + 1] - times[begun]) * 1000)


def redis_cost() -> str:
    """What `python -m tests.bench.limits` says; it ends with a fault where the limit is passed."""
    command = [sys.executable, "-m", "tests.bench.limits"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout.rstrip()


def median_p99_ms(values_ms: list[float]) -> tuple[float, float]:
    """Of a sample."""
    return statistics.median(values_ms), statistics.quantiles(values_ms, n=100)[98]
