"""`python -m tests.chaos.takeover [--seconds 60]`: each second a node is killed with SIGKILL, and started again.

Decides which requests may be lost then: streams that the dead node had begun, and those end with an `error` event.
All others are to be answered by another node within a second. The exit code tells whether it is so.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.load import SHORT, STREAM, Ask, Load, render_rows, render_s
from tests.e2e.money.audit import Books, settled_books
from tests.e2e.money.client import Tenant
from tests.e2e.money.service import Part, Service, running_service
from tests.e2e.money.storm import SETTLED_WITHIN_S
from tests.e2e.money.verdict import Verdict

TAKEN_OVER_WITHIN_S = 1.0
CLEAR_S = 0.2
"""By which a request must have been later than an undisturbed one, to be one that was asked again."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A death."""

    node: str
    at_s: float


@dataclass(slots=True)
class Killer:
    """Kills one node after the other.

    Attributes:
        spared: how often only one node served, which was let live.
    """

    service: Service
    rng: random.Random
    every_s: float
    kills: list[Kill] = field(default_factory=list)
    spared: int = 0

    async def run(self, until_s: float) -> None:
        """One that serves, as long as there is another one."""
        begun_s = time.monotonic()
        for number in itertools.count(1):
            await asyncio.sleep(max(0, begun_s + number * self.every_s - time.monotonic()))
            if time.monotonic() >= until_s:
                return
            ready = await self._ready()
            if len(ready) < 2:
                self.spared += 1
                continue
            node = self.rng.choice(ready)
            self.kills.append(Kill(node.name, time.monotonic()))
            node.kill()
            node.start()

    async def _ready(self) -> list[Part]:
        nodes = self.service.nodes
        told = await asyncio.gather(*(self.service.facts(node) for node in nodes))
        return [node for node, (status, _) in zip(nodes, told, strict=True) if status == 200]


@dataclass(slots=True)
class Findings:
    """What a run comes to.

    Attributes:
        ends: of requests, by kind and end. lost: a sentence for each that no death excuses.
        taken_over_s: from a death to the answer of a request that the dead node held, the engine's own time left out.
        next_s: from a death to the next answer to a client whom the dead node had answered last.
        fresh_s: how long short requests took that were sent within a second after a death. calm_s: all others.
    """

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    taken_over_s: list[float] = field(default_factory=list)
    next_s: list[float] = field(default_factory=list)
    fresh_s: list[float] = field(default_factory=list)
    calm_s: list[float] = field(default_factory=list)

    def read(self, asks: Sequence[Ask], kills: Sequence[Kill], books: Books) -> None:
        """All requests beside all deaths."""
        for ask in asks:
            self.ends[ask.kind.name, ask.end] += 1
            if not (ask.is_right or _is_excused(ask, kills, books)):
                self.lost.append(f"{ask.call.request_id or '(no id)'}: {ask.kind.name}: {ask.end}")
            if ask.kind is SHORT and ask.is_right:
                is_fresh = any(0 <= ask.sent_s - kill.at_s < TAKEN_OVER_WITHIN_S for kill in kills)
                (self.fresh_s if is_fresh else self.calm_s).append(ask.took_s)
            elif ask.is_right and ask.kind is not STREAM:
                self.taken_over_s += _taken_over(ask, kills)
        for loop in range(SHORT.loops):
            own = sorted((ask for ask in asks if ask.kind is SHORT and ask.loop == loop), key=lambda ask: ask.done_s)
            self.next_s += _next_answers([ask for ask in own if ask.is_right], kills)


def _is_excused(ask: Ask, kills: Sequence[Kill], books: Books) -> bool:
    """A stream that had begun, at a node that died meanwhile, and was told so."""
    record = books.records.get(ask.call.request_id)
    return (
        ask.call.status == 200
        and ask.call.code == "node_unavailable"
        and record is not None
        and any(kill.node == record.node and ask.sent_s <= kill.at_s <= ask.done_s for kill in kills)
    )


def _taken_over(ask: Ask, kills: Sequence[Kill]) -> list[float]:
    """Of the last death after which another node must have begun anew."""
    late_s = ask.took_s - ask.kind.script_s
    for kill in reversed(kills):
        held_s = kill.at_s - ask.sent_s
        if held_s > CLEAR_S and held_s <= late_s and kill.node != ask.call.node:
            return [late_s - held_s]
    return []


def _next_answers(asks: Sequence[Ask], kills: Sequence[Kill]) -> list[float]:
    """Of one client, in order."""
    return [
        after.done_s - kill.at_s
        for before, after in itertools.pairwise(asks)
        for kill in kills
        if kill.node == before.call.node and before.done_s <= kill.at_s < after.done_s
    ]


def render(killer: Killer, found: Findings, verdict: Verdict) -> str:
    """The table."""
    rows: list[tuple[str, object]] = [
        ("load average of the machine", f"{os.getloadavg()[0]:.1f} of {os.cpu_count()}"),
        ("nodes killed", len(killer.kills)),
        ("seconds in which only one served, and was spared", killer.spared),
        *((f"{kind}: {end}", count) for (kind, end), count in sorted(found.ends.items())),
        ("lost that should not be", len(found.lost)),
        ("billed once", verdict.billed_once),
        ("billed, and lost with its node", verdict.undelivered),
        ("unaccounted", len(verdict.unaccounted)),
        ("held requests taken over", len(found.taken_over_s)),
        ("their answers after the death, median and max s", render_s(found.taken_over_s)),
        ("next answer to a dead node's client, median and max s", render_s(found.next_s)),
        ("short requests within 1 s after a death, s", render_s(found.fresh_s)),
        ("all other short requests, s", render_s(found.calm_s)),
    ]
    return render_rows(rows)


async def run(seconds: float, every_s: float, seed: int, home: Path) -> int:
    """The table, and the number of what is not as it should be."""
    async with running_service(home, served={}) as service:
        tenant, turns = await Tenant.made(service), itertools.cycle(service.edges)
        load, killer = Load(tenant, lambda: next(turns)), Killer(service, random.Random(seed), every_s)
        is_over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run(is_over))
            await killer.run(time.monotonic() + seconds)
            is_over.set()
        await service.heal()
        books, verdict, found = await settled_books(tenant, SETTLED_WITHIN_S), Verdict(), Findings()
        verdict.read(load.accounts(), books)
        found.read(load.asks, killer.kills, books)
        print(render(killer, found, verdict))
        wrong = verdict.unaccounted + found.lost
        wrong += [f"taken over after {late_s:.2f} s" for late_s in found.taken_over_s if late_s > TAKEN_OVER_WITHIN_S]
        wrong += [f"answered next after {late_s:.2f} s" for late_s in found.next_s if late_s > TAKEN_OVER_WITHIN_S]
        for sentence in wrong[:20]:
            print(sentence)
        return len(wrong)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description="Each second a node is killed and started again, under load.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=1, metavar="S")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path, help="A new folder that stays, with the logs.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="takeover-") as folder:
        home = options.home or Path(folder)
        sys.exit(min(1, asyncio.run(run(options.seconds, options.every, options.seed, home))))


if __name__ == "__main__":
    main()
