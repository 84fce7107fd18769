"""Streams: how many events pass at which cost and delay, whether every byte is the node's, and what open ones weigh.

Decides the load: so many streams at once, whose events the node writes one by one at their pace, or as fast as they
are taken. A stream is the same if its SHA-256 is that which the stub tells in its last event.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.edge.client import Connection, Events, Way
from tests.bench.edge.processes import cpu_s, resident_mib
from tests.bench.edge.stub_node import phrase


@dataclass(frozen=True, slots=True)
class Load:
    """So many streams of so many deltas, one every `every_ms` (0: as fast as they are taken)."""

    streams: int
    events: int
    every_ms: int

    @property
    def pace(self) -> str:
        """In words."""
        return f"{self.streams * 1000 // self.every_ms} events/s" if self.every_ms else "as fast as taken"


@dataclass(slots=True)
class Flow:
    """What came of a load on one way.

    Attributes:
        ages_ms: of events, from the stub's writing to their arrival at the client. different: streams not the same.
    """

    events: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    different: int = 0
    ages_ms: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        """Events that arrived."""
        return self.events / self.wall_s

    @property
    def cpu_us(self) -> float:
        """Of an event."""
        return self.cpu_s / self.events * 1e6

    @property
    def cores(self) -> float:
        """How many the way's processes used."""
        return self.cpu_s / self.wall_s

    def quantile_ms(self, percent: int) -> float | None:
        """Of the ages, if events told theirs."""
        return statistics.quantiles(self.ages_ms, n=100)[percent - 1] if self.ages_ms else None


async def measure_flow(way: Way, load: Load) -> Flow:
    """Open all streams, and read them to their ends."""
    flow, sinks = Flow(), [Events(has_ages=load.every_ms > 0) for _ in range(load.streams)]
    request = way.request(phrase(load.events, load.every_ms), stream=True)
    connections = [await Connection.open(way.port) for _ in sinks]
    begun_s, begun_cpu_s = time.perf_counter(), cpu_s(way.pids)

    async def read(number: int) -> int:
        await asyncio.sleep(load.every_ms / 1000 * number / load.streams)  # so that their events don't come in step
        return await connections[number].ask(request, sinks[number])

    statuses = await asyncio.gather(*map(read, range(load.streams)))
    flow.wall_s = time.perf_counter() - begun_s
    flow.cpu_s = cpu_s(way.pids) - begun_cpu_s
    assert set(statuses) == {200}, statuses
    for connection, sink in zip(connections, sinks, strict=True):
        connection.close()
        flow.events += sink.count
        flow.ages_ms += sink.ages_ms
        flow.different += sink.is_same is not True
    return flow


async def compare_flows(ways: Sequence[Way], load: Load) -> dict[str, Flow]:
    """In turn. By the way's name."""
    return {way.name: await measure_flow(way, load) for way in ways}


@dataclass(frozen=True, slots=True)
class Weight:
    """What an edge process holds, in MiB: before the first request, with all streams open, and after their end."""

    streams: int
    before_mib: float
    open_mib: float
    after_mib: float


async def weigh(way: Way, load: Load) -> Weight:
    """Of the way's one process, which should be fresh; the most of what is seen while the streams run."""
    (pid,) = way.pids
    before = resident_mib(pid)
    running = asyncio.create_task(measure_flow(way, load))
    most = before
    while not running.done():
        await asyncio.wait({running}, timeout=0.2)
        most = max(most, resident_mib(pid))
    flow = running.result()
    assert not flow.different, flow.different
    return Weight(load.streams, before, most, resident_mib(pid))
