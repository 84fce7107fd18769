"""`make soak`, or `python -m tests.chaos.soak [--minutes 20]`: mixed traffic at half of what the machine can do.

Decides what must be flat or gone: resident memory over the second half, and at the end every lease, reservation and
connection, and every task of an event loop that was not there before. Prints a line per minute; the exit code tells
whether all is so and every answer was right.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import psutil

from shared.usage import UsageReader
from tests.chaos.load import render_rows
from tests.chaos.mix import SORTS, Mix, choose
from tests.e2e.money.audit import read_loose
from tests.e2e.money.service import Part, Service, running_service, until

CAPACITY_S, LOOPS = 10.0, 32
SAMPLE_S = 5.0
MOST_AT_ONCE = 2000
"""Requests that may run; a service that stands still is not to fill this process instead."""
GONE_WITHIN_S = 120.0
"""A kept connection between edge and node is closed after 60 s."""
GROWTH_PERCENT = 5.0
"""By which memory may grow over the second half: a heap settles slowly, and a leak doesn't end."""
LOOKS, LOOK_EVERY_S = 8, 0.3
"""At the tasks of a part that has nothing to do: one is the scrape's own, or a heartbeat's, now and then."""
_TASKS = re.compile(r"^b3os_event_loop_tasks (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Weight:
    """One process at a time.

    Attributes:
        children_mib: resident in all that it forked, shared pages counted in each.
        tasks: of its event loop.
    """

    at_s: float
    mib: float
    children_mib: float
    fds: int
    threads: int
    tasks: int

    def __str__(self) -> str:
        return f"{self.mib:.1f}+{self.children_mib:.0f} MiB {self.fds} fd {self.threads} thr {self.tasks} tasks"


async def weigh(service: Service, part: Part) -> Weight:
    """What it holds now."""
    process = psutil.Process(part.process.pid)
    children_bytes = 0
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            children_bytes += child.memory_info().rss
    return Weight(
        time.monotonic(),
        process.memory_info().rss / 2**20,
        children_bytes / 2**20,
        process.num_fds(),
        process.num_threads(),
        await fetch_tasks(service, part),
    )


async def fetch_tasks(service: Service, part: Part) -> int:
    """Of its event loop, as it tells."""
    async with service.http.get(f"{part.operator_url}/metrics") as answer:
        found = _TASKS.search(await answer.text())
    assert found is not None, f"{part.name} does not tell of its tasks"
    return round(float(found[1]))


async def count_idle_tasks(service: Service) -> dict[str, int]:
    """Of each part, while nothing runs: the fewest of a few looks."""
    parts, fewest = (*service.nodes, *service.edges), dict[str, int]()
    for _ in range(LOOKS):
        for part in parts:
            tasks = await fetch_tasks(service, part)
            fewest[part.name] = min(tasks, fewest.get(part.name, tasks))
        await asyncio.sleep(LOOK_EVERY_S)
    return fewest


def name_left_tasks(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Parts that have more than they began with, a sentence each."""
    return [
        f"{name} began with {before[name]} tasks, and has {count}"
        for name, count in after.items()
        if count > before[name]
    ]


def count_connections(service: Service) -> dict[str, int]:
    """Those that were opened to each kind of part and are not closed on both sides."""
    kinds: dict[str, set[int | None]] = {
        "to edges": {urlsplit(part.url).port for part in service.edges},
        "to nodes": {urlsplit(part.url).port for part in service.nodes},
        "to redis": {service.redis_port},
    }
    gone = (psutil.CONN_LISTEN, psutil.CONN_TIME_WAIT, psutil.CONN_NONE)
    ports = [each.raddr.port for each in psutil.net_connections("tcp") if each.raddr and each.status not in gone]
    return {kind: sum(port in own for port in ports) for kind, own in kinds.items()}


def fit_per_hour(times_s: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the line through these points."""
    return statistics.linear_regression(times_s, values).slope * 3600


async def measure_capacity(mix: Mix) -> float:
    """Requests a second, asked without pause; those whose script takes its time are left out."""
    sorts, rng = [sort for sort in SORTS if not sort.is_paced], random.Random(1)
    until_s, done = time.monotonic() + CAPACITY_S, 0

    async def ask_on() -> None:
        nonlocal done
        while time.monotonic() < until_s:
            await mix.ask(choose(rng, sorts))
            done += 1

    await asyncio.gather(*(ask_on() for _ in range(LOOPS)))
    return done / CAPACITY_S


@dataclass(slots=True)
class Soak:
    """Asks at a rate, and weighs.

    Attributes:
        weights: of each part, in order. missed: requests that were not sent, since too many ran.
    """

    mix: Mix
    rate_per_s: float
    weights: Mapping[str, list[Weight]]
    missed: int = 0
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self, minutes: float) -> None:
        """Until the time is over and all were answered."""
        begun_s = time.monotonic()
        weighing = asyncio.create_task(self._weigh_on(begun_s))
        rng, number = random.Random(2), 0
        while (left_s := begun_s + number / self.rate_per_s - time.monotonic()) < minutes * 60:
            if time.monotonic() - begun_s >= minutes * 60:
                break
            await asyncio.sleep(max(0, left_s))
            number += 1
            if len(self._running) >= MOST_AT_ONCE:
                self.missed += 1
                continue
            task = asyncio.create_task(self.mix.ask(choose(rng)))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        weighing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await weighing
        await asyncio.gather(*self._running)

    async def _weigh_on(self, begun_s: float) -> None:
        service, minute = self.mix.service, 0
        while True:
            for part in (*service.nodes, *service.edges):
                self.weights[part.name].append(await weigh(service, part))
            if time.monotonic() - begun_s >= minute * 60:
                asked = sum(self.mix.ends.values())
                print(f"minute {minute}: {asked} answered, {len(self._running)} run, {_shown(service)}")
                for name, weights in self.weights.items():
                    print(f"  {name}: {weights[-1]}", flush=True)
                minute += 1
            await asyncio.sleep(SAMPLE_S)

    def grown(self) -> list[tuple[str, float, float]]:
        """By part, over the second half: MiB an hour, and percent in all."""
        found = []
        for name, weights in self.weights.items():
            late = weights[len(weights) // 2 :]
            times_s, values = [each.at_s for each in late], [each.mib + each.children_mib for each in late]
            per_hour = fit_per_hour(times_s, values)
            percent = 100 * per_hour * (times_s[-1] - times_s[0]) / 3600 / values[0]
            found.append((name, per_hour, percent))
        return found


def _shown(service: Service) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in count_connections(service).items())


async def find_remains(mix: Mix) -> list[str]:
    """What is not gone, a sentence each; it has as long as a kept connection."""
    service, remains = mix.service, list[str]()

    async def is_gone() -> bool:
        loose = [await read_loose(tenant) for tenant in mix.tenants()]
        connections = count_connections(service)
        return all(each.is_none for each in loose) and not (connections["to edges"] or connections["to nodes"])

    try:
        await until(is_gone, "all is gone", GONE_WITHIN_S)
    except AssertionError:
        remains += [str(loose) for tenant in mix.tenants() if not (loose := await read_loose(tenant)).is_none]
        remains.append(_shown(service))
    today = datetime.now(UTC).date()
    usage = await UsageReader(service.redis).fetch_days(mix.steady.org, today - timedelta(days=1), today)
    billed = sum(row.output_tokens for row in usage)
    if billed != mix.told_tokens:
        remains.append(f"{billed} tokens were billed, {mix.told_tokens} were told of")
    return remains


async def run(minutes: float, rate_per_s: float | None, home: Path) -> int:
    """The lines, the table, and the number of what is not as it should be."""
    async with running_service(home, served={}) as service:
        tasks = await count_idle_tasks(service)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            mix = await Mix.made(service, http)
            if rate_per_s is None:
                capacity = await measure_capacity(mix)
                print(f"capacity {capacity:.0f} requests/s; half of it is asked")
                rate_per_s = capacity / 2
            soak = Soak(mix, rate_per_s, {part.name: [] for part in (*service.nodes, *service.edges)})
            await soak.run(minutes)
        remains = await find_remains(mix)
        tasks_left = await count_idle_tasks(service)
        remains += name_left_tasks(tasks, tasks_left)
        print(f"at the end: {_shown(service)}")
        for part in (*service.nodes, *service.edges):
            print(f"  {part.name}: {await weigh(service, part)}")
        grown = soak.grown()
        rows: list[tuple[str, object]] = [
            *((f"{sort}: {end}"[:56], count) for (sort, end), count in sorted(mix.ends.items())),
            ("not sent, since too many ran", soak.missed),
            *(
                (f"{name}: tasks, at the begin and the end", f"{tasks[name]} {left}")
                for name, left in tasks_left.items()
            ),
            *(
                (f"{name}: MiB an hour, second half", f"{per_hour:+.1f} {percent:+.1f}%")
                for name, per_hour, percent in grown
            ),
        ]
        print(render_rows(rows))
        wrong = [f"{count} x {sort}: {end}" for (sort, end), count in mix.wrong.items()] + remains
        wrong += [f"{soak.missed} requests were not sent"] if soak.missed else []
        wrong += [f"{name} grew by {percent:.1f} %" for name, _, percent in grown if percent > GROWTH_PERCENT]
        for sentence in wrong[:20]:
            print(sentence)
        return len(wrong)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description="Mixed traffic at half of the machine's capacity.")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--rate", type=float, metavar="PER_S", help="Instead of half of the capacity.")
    parser.add_argument("--home", type=Path, help="A new folder that stays, with the logs.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        sys.exit(min(1, asyncio.run(run(options.minutes, options.rate, options.home or Path(folder)))))


if __name__ == "__main__":
    main()
