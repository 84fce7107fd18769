"""Small whole answers: what a way adds at a fixed rate, and how many it serves when it is never idle.

Decides the load. At a fixed rate requests leave on time, however long others take, the ways' turns evenly between
each other. At saturation so many connections ask again and again, the ways for a few seconds each in turn.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.edge.client import Connection, Way, Whole
from tests.bench.edge.processes import cpu_s

TEXT = "Hi"
WARM_UP = 200
CONNECTIONS = 32


@dataclass(slots=True)
class Latency:
    """Of one way at a fixed rate.

    Attributes:
        late_ms: by how much requests left too late, which is the client's fault. cpu_s: of the way's processes.
    """

    values_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def cpu_us(self) -> float:
        """Of a request."""
        return self.cpu_s / len(self.values_ms) * 1e6

    def quantile_ms(self, percent: int) -> float:
        """As `statistics.quantiles` counts."""
        return statistics.quantiles(self.values_ms, n=100)[percent - 1]


@dataclass(slots=True)
class Saturation:
    """Of one way, over its rounds.

    Attributes:
        rates: requests per second of each round. cpu_s: of the way's processes. wall_s: all rounds together.
    """

    rates: list[float] = field(default_factory=list)
    requests: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0

    @property
    def per_s(self) -> float:
        """The median round's."""
        return statistics.median(self.rates)

    @property
    def cpu_us(self) -> float:
        """Of a request."""
        return self.cpu_s / self.requests * 1e6

    @property
    def cores(self) -> float:
        """How many the way's processes used."""
        return self.cpu_s / self.wall_s


class _Asker:
    """Asks on idle connections, and opens more where there are none."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self._request = way.request(TEXT)
        self._idle: list[Connection] = []
        self._opened: list[Connection] = []

    async def ask(self, into: Latency, due_s: float) -> None:
        """One request."""
        connection = self._idle.pop() if self._idle else None
        if connection is None or not connection.is_open:  # LiteLLM's server closes what was idle for 5 s
            connection = await Connection.open(self.way.port)
            self._opened.append(connection)
        sink = Whole()
        begun_s = time.perf_counter()
        status = await connection.ask(self._request, sink)
        into.values_ms.append((time.perf_counter() - begun_s) * 1000)
        into.late_ms.append((begun_s - due_s) * 1000)
        self._idle.append(connection)
        assert status == 200, (self.way.name, status, bytes(sink.body))

    async def warm_up(self) -> None:
        """So that what is loaded, compiled or connected once is not measured."""
        for _ in range(WARM_UP // 4):
            await asyncio.gather(*(self.ask(Latency(), 0) for _ in range(4)))

    def close(self) -> None:
        """All connections."""
        for connection in self._opened:
            connection.close()


async def measure_latency(ways: Sequence[Way], rate_per_s: float, duration_s: float) -> dict[str, Latency]:
    """Each way at `rate_per_s`, all at the same time. By the way's name."""
    askers = [_Asker(way) for way in ways]
    for asker in askers:
        await asker.warm_up()
    found = {way.name: Latency(cpu_s=-cpu_s(way.pids)) for way in ways}
    running: set[asyncio.Task[None]] = set()
    step_s = 1 / rate_per_s / len(ways)
    begun_s = time.perf_counter() + step_s
    for turn in range(int(duration_s / step_s)):
        asker = askers[turn % len(askers)]
        due_s = begun_s + turn * step_s
        await asyncio.sleep(max(0, due_s - time.perf_counter()))
        task = asyncio.create_task(asker.ask(found[asker.way.name], due_s))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    for asker in askers:
        asker.close()
        found[asker.way.name].cpu_s += cpu_s(asker.way.pids)
    return found


async def saturate(ways: Sequence[Way], rounds: int, round_s: float) -> dict[str, Saturation]:
    """Each way in turn. By the way's name."""
    found = {way.name: Saturation() for way in ways}
    for way in ways:
        await _round(way, Saturation(), 1)
    for _ in range(rounds):
        for way in ways:
            await _round(way, found[way.name], round_s)
    return found


async def _round(way: Way, into: Saturation, round_s: float) -> None:
    request = way.request(TEXT)
    pool = [await Connection.open(way.port) for _ in range(CONNECTIONS)]
    begun_s, begun_cpu_s, served = time.perf_counter(), cpu_s(way.pids), 0

    async def go_on(connection: Connection) -> None:
        nonlocal served
        while time.perf_counter() - begun_s < round_s:
            sink = Whole()
            status = await connection.ask(request, sink)
            assert status == 200, (way.name, status, bytes(sink.body))
            served += 1

    await asyncio.gather(*map(go_on, pool))
    took_s = time.perf_counter() - begun_s
    into.rates.append(served / took_s)
    into.requests += served
    into.cpu_s += cpu_s(way.pids) - begun_cpu_s
    into.wall_s += took_s
    for connection in pool:
        connection.close()
