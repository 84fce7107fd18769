"""`python -m tests.chaos.rolling [--rounds 1] [--drain 5]`: each node and edge is restarted with SIGTERM, under load.

Decides which requests may fail then: streams that went on when the time to drain was over, and those that were
begun at a part which stops are told so. Clients come as through a balancer: they look at `/readyz`, and ask another
edge where a connection is refused. The exit code tells whether nothing else failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.load import KINDS, Ask, Kind, Load, render_rows
from tests.e2e.money.audit import Books, settled_books
from tests.e2e.money.client import Tenant, ticks
from tests.e2e.money.service import Part, Service, running_service, until
from tests.e2e.money.storm import SETTLED_WITHIN_S
from tests.e2e.money.verdict import Verdict

POLL_S, BETWEEN_S = 0.1, 1.0
NEAR_S = 0.5
"""By which an end may come before the time to drain is over, on two clocks."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One part, from SIGTERM until it serves again."""

    part: str
    at_s: float
    ended_s: float
    ready_s: float


@dataclass(slots=True)
class Balancer:
    """Gives the edges in turn that were ready when it looked last; any where none was."""

    service: Service
    _ready: list[Part] = field(default_factory=list)
    _turns: itertools.count[int] = field(default_factory=itertools.count)

    def pick(self) -> Part:
        """For the next request."""
        edges = self._ready or self.service.edges
        return edges[next(self._turns) % len(edges)]

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """While the body runs."""
        task = asyncio.create_task(self._look_on())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _look_on(self) -> None:
        while True:
            self._ready = [edge for edge in self.service.edges if (await self.service.facts(edge))[0] == 200]
            await asyncio.sleep(POLL_S)


async def restart(service: Service, part: Part) -> Restart:
    """Stop it in order, start it, and wait until it serves."""
    at_s = time.monotonic()
    await asyncio.to_thread(part.stop)
    ended_s = time.monotonic()
    part.start()
    await until(lambda: service.is_ready(part), f"{part.name} serves again")
    return Restart(part.name, at_s, ended_s, time.monotonic())


def was_cut_by_drain(ask: Ask, restarts: Sequence[Restart], drain_s: float, books: Books) -> bool:
    """A stream whose node or edge had been told to stop for as long as it may take."""
    record = books.records.get(ask.call.request_id)
    parts = {ask.call.edge.name, record.node if record else None}
    return ask.call.status == 200 and any(
        each.part in parts and ask.sent_s <= each.at_s and ask.done_s >= each.at_s + drain_s - NEAR_S
        for each in restarts
    )


async def run(rounds: int, drain_s: float, home: Path) -> int:
    """The table, and the number of what is not as it should be."""
    long = Kind("stream, longer than draining", ticks(3 * drain_s), stream=True, script_s=3 * drain_s, loops=2)
    drains = ({f"B3OS_{side}_DRAIN_S": str(drain_s)} for side in ("NODE", "EDGE"))
    node_settings, edge_settings = drains
    async with running_service(home, node_settings=node_settings, edge_settings=edge_settings, served={}) as service:
        tenant, balancer, restarts = await Tenant.made(service), Balancer(service), list[Restart]()
        load = Load(tenant, balancer.pick, (*KINDS, long), is_resent=True)
        is_over = asyncio.Event()
        async with balancer.looking(), asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run(is_over))
            for part in [*service.nodes, *service.edges] * rounds:
                await asyncio.sleep(BETWEEN_S)
                restarts.append(await restart(service, part))
            is_over.set()
        books, verdict = await settled_books(tenant, SETTLED_WITHIN_S), Verdict()
        verdict.read(load.accounts(), books)
        ends: Counter[tuple[str, str]] = Counter()
        failed = []
        for ask in load.asks:
            is_allowed = not ask.is_right and was_cut_by_drain(ask, restarts, drain_s, books)
            ends[ask.kind.name, f"{ask.end}, after draining" if is_allowed else ask.end] += 1
            if not (ask.is_right or is_allowed):
                at = next((each.part for each in restarts if each.at_s <= ask.done_s <= each.ready_s), "nobody")
                failed.append(f"{ask.call.request_id or '(no id)'}: {ask.kind.name}: {ask.end}, while {at} restarted")
        print(
            render_rows(
                [
                    *((f"{each.part}: s to its end, and until it served", _times(each)) for each in restarts),
                    *((f"{kind}: {end}", count) for (kind, end), count in sorted(ends.items())),
                    ("failed", len(failed)),
                    ("billed once", verdict.billed_once),
                    ("unaccounted", len(verdict.unaccounted)),
                ]
            )
        )
        wrong = verdict.unaccounted + failed
        for sentence in wrong[:20]:
            print(sentence)
        return len(wrong)


def _times(each: Restart) -> str:
    return f"{each.ended_s - each.at_s:.1f} {each.ready_s - each.ended_s:.1f}"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description="Nodes and edges are restarted one after the other, under load.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--drain", type=float, default=5, metavar="S")
    parser.add_argument("--home", type=Path, help="A new folder that stays, with the logs.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rolling-") as folder:
        sys.exit(min(1, asyncio.run(run(options.rounds, options.drain, options.home or Path(folder)))))


if __name__ == "__main__":
    main()
