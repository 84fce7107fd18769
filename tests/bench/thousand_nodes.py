"""What a thousand nodes cost one Redis, an edge and each node: heartbeats written, read and heard.

Run as `python -m tests.bench.thousand_nodes [NODES]`. Redis is configured as `b3os dev` does (`appendfsync always`),
so a beat is on its disk before it is answered. What is measured is the code of edges and nodes. Redis's time is its
own count (`INFO cpu`), an edge's is its thread's (`time.thread_time`): another load of the machine makes them longer
by what it takes of the caches, so each figure is the least of five. Seconds by the clock are told for what they are.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis

from edge.cluster import Cluster
from edge.registry import EVERY_S as READ_EVERY_S
from node.hearing import Hearing
from node.peers import Peers
from shared.heartbeat import (
    EVERY_S,
    NODES,
    Heartbeat,
    HeartbeatParser,
    ModelCard,
    hear_all,
    node_key,
    read_all,
    send_heartbeat,
)
from shared.node_hosts import PRIVATE, NodeHosts
from shared.redis import connect_redis
from tests.redis_server import as_user, running_redis

AT_ONCE = 16
ROUNDS = 5
LONG_MS = 3_600_000


def heartbeat_of(number: int, beat: int = 123_456) -> Heartbeat:
    """As a node of one model tells it."""
    model = ModelCard(
        id="b3os/qwen3.5-9b",
        display_name="Qwen3.5 9B",
        created_s=1_790_000_000,
        context_tokens=262_144,
        takes_images=True,
    )
    return Heartbeat(
        id=f"node-{number:04}",
        url=f"https://10.0.{number >> 8}.{number & 255}:7710",
        boot=f"{number:016x}",
        beat=beat,
        state="ready",
        models=(model,),
        running=17,
        waiting=3,
        cache_usage=0.5,
        version="0.1.0",
    )


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """Of one operation: Redis's processor, and the clock's time with some at once."""

    redis_us: float
    wall_us: float


async def cpu_s(redis: Redis) -> float:
    """Of the whole process, so far."""
    info = await redis.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def measure(
    operator: Redis, count: int, work: Callable[[int], Awaitable[object]], at_once: int = AT_ONCE
) -> Cost:
    """Do it `count` times, a few at once."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    began_s, began_cpu_s = time.perf_counter(), await cpu_s(operator)
    await asyncio.gather(*(worker() for _ in range(at_once)))
    took_s, took_cpu_s = time.perf_counter() - began_s, await cpu_s(operator) - began_cpu_s
    return Cost(took_cpu_s / count * 1e6, took_s / count * 1e6)


async def held_bytes(operator: Redis, name: str) -> int:
    """What Redis needs for a key."""
    return int(await cast("Any", operator.memory_usage(name, samples=0)))


async def aof_bytes(operator: Redis) -> int:
    """What the append-only file has grown to."""
    return int((await operator.info("persistence"))["aof_current_size"])


def texts_of(nodes: int, beat: int) -> dict[str, str]:
    """What is read when each has told so often."""
    told = (heartbeat_of(number, beat) for number in range(nodes))
    return {each.id: each.model_dump_json() for each in told}


@dataclass(frozen=True, slots=True)
class Look:
    """What an edge does with what it has read: where all is new, and where half of it is, as once a second."""

    bytes: int
    all_new_ms: float
    half_new_ms: float


def look(nodes: int) -> Look:
    """The least of some rounds."""
    parser, cluster = HeartbeatParser(), Cluster({}, NodeHosts(PRIVATE), time.monotonic)

    def spend_ms(texts: dict[str, str]) -> float:
        began_s = time.thread_time()
        cluster.hear(parser.parse(texts))
        return (time.thread_time() - began_s) * 1e3

    tracemalloc.start()
    spend_ms(texts := texts_of(nodes, 1))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    all_new, half_new = [], []
    for beat in range(2, 2 + ROUNDS):
        newer = texts_of(nodes, beat)
        half = dict(list(newer.items())[: nodes // 2])
        half_new.append(spend_ms(texts | half))
        all_new.append(spend_ms(texts := texts_of(nodes, 100 + beat)))
    assert len(cluster.list_nodes()) == nodes
    return Look(size, min(all_new), min(half_new))


async def run(url: str, nodes: int) -> None:
    """Print the figures."""
    operator, node, edge = (connect_redis(as_user(user, url)) for user in ("operator", "node", "edge"))

    async def tell(number: int) -> None:
        await send_heartbeat(node, heartbeat_of(number % nodes, number))

    async def read(number: int) -> None:
        del number
        assert len(await read_all(edge)) == nodes

    async def hear(number: int) -> None:
        del number
        assert len(await hear_all(node)) == nodes

    before = await aof_bytes(operator)
    telling = min([await measure(operator, nodes, tell) for _ in range(ROUNDS)])
    written = (await aof_bytes(operator) - before) / (ROUNDS * nodes)
    async with operator.pipeline(transaction=False) as changes:
        for told in map(heartbeat_of, range(nodes)):  # all have to live while they are read, however slowly
            changes.set(node_key(told.id), told.model_dump_json(), px=LONG_MS)
        await changes.execute()
    if await cast("Any", operator.scard(NODES)) != nodes:
        raise SystemExit("not all nodes are there")
    told_bytes = sum(map(len, (await read_all(edge)).values()))
    held = await held_bytes(operator, node_key("node-0000")) + await held_bytes(operator, NODES) / nodes
    reading = min([await measure(operator, 20, read, at_once=2) for _ in range(ROUNDS)])
    hearing = min([await measure(operator, 20, hear, at_once=2) for _ in range(ROUNDS)])
    rhythm = Hearing(node, Peers("n", NodeHosts(PRIVATE), time.monotonic), lambda: 0.5)
    await rhythm.listen()
    for client in (operator, node, edge):
        await client.aclose()
    report(nodes, told_bytes, held, (telling, hearing, reading), written, look(nodes), rhythm.pause_s())


def report(
    nodes: int,
    told_bytes: int,
    held: float,
    costs: tuple[Cost, Cost, Cost],
    written_bytes: float,
    looked: Look,
    pause_s: float,
) -> None:
    """The sums that follow."""
    telling, hearing, reading = costs
    beats, hears = nodes / EVERY_S, nodes / pause_s

    def line(what: str, figures: str) -> None:
        print(f"{what:33}{figures}")

    print(f"{nodes} nodes, heartbeats of {told_bytes / nodes:.0f} bytes, {beats:.0f} beats a second")
    line("Redis holds", f"{held:8.0f} bytes a node")
    line("a beat", f"{telling.redis_us:8.1f} us of Redis, {telling.wall_us:.0f} us by the clock")
    line("all beats", f"{telling.redis_us * beats / 1e4:8.1f} % of Redis's core")
    line("append-only file", f"{written_bytes * beats / 1e3:8.0f} kB a second, {written_bytes:.0f} a beat")
    line("a node hears all", f"{hearing.redis_us:8.1f} us of Redis, {hearing.wall_us:.0f} us by the clock")
    line("all nodes hear", f"{hearing.redis_us * hears / 1e4:8.1f} % of Redis's core, each every {pause_s:.0f} s")
    line("  and the network", f"{told_bytes * hears / 1e6:8.1f} MB a second")
    line("an edge's read", f"{reading.redis_us:8.1f} us of Redis, {reading.wall_us:.0f} us by the clock")
    line("an edge, once a second", f"{reading.redis_us / READ_EVERY_S / 1e4:8.2f} % of Redis's core")
    line("  and the network", f"{told_bytes / READ_EVERY_S / 1e6:8.2f} MB a second")
    line("an edge's table", f"{looked.bytes / 1e6:8.2f} MB")
    line(
        "  to take what was read", f"{looked.half_new_ms:8.1f} ms with half of it new, {looked.all_new_ms:.1f} ms all"
    )


def main() -> None:
    """On a Redis of its own."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder, running_redis(Path(folder)) as url:
        asyncio.run(run(url, nodes))


if __name__ == "__main__":
    main()
