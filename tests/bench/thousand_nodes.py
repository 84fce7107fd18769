"""What a thousand nodes cost one Redis and an edge: heartbeats written, and read.

Run as `python -m tests.bench.thousand_nodes [NODES]`. Redis is configured as `b3os dev` does (`appendfsync always`),
so a beat is on its disk before it is answered. Its time is its own count (`INFO cpu`), which another load of the
machine does not change; seconds by the clock are told for what they are. Two ways to beat are measured: one that
tells and hears nothing, and one that hears of all other nodes by the same question, whose answer grows with the
cluster.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis

from shared.redis import connect_redis
from tests.redis_server import as_user, running_redis

BEAT_EVERY_S, READ_EVERY_S, LIFETIME_MS = 2, 1, 6000
AT_ONCE = 16
ROUNDS = 5
IDS = "b3os:nodes"
# KEYS: 1 ids, 2 own heartbeat. ARGV: 1 own id, 2 heartbeat, 3 lifetime in ms, 4 what names begin with
TELL = """
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
"""
TELL_AND_HEAR = f"""{TELL}
local living = {{}}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local told = redis.call('GET', ARGV[4] .. id)
  if told then living[#living + 1] = told else redis.call('SREM', KEYS[1], id) end
end
return living
"""


def heartbeat_of(number: int) -> str:
    """As a node of one model tells it."""
    model = {
        "id": "b3os/qwen3.5-9b",
        "display_name": "Qwen3.5 9B",
        "created_s": 1_790_000_000,
        "context_tokens": 262_144,
        "takes_images": True,
    }
    told = {
        "id": f"node-{number:04}",
        "url": f"https://node-{number:04}.internal:7710",
        "boot": f"{number:016x}",
        "beat": 123_456,
        "state": "ready",
        "models": [model],
        "running": 17,
        "waiting": 3,
        "cache_usage": 0.5,
        "version": "0.1.0",
    }
    return json.dumps(told, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one operation: Redis's processor, and the clock's time with `AT_ONCE` at once."""

    redis_us: float
    wall_us: float


async def cpu_s(redis: Redis) -> float:
    """Of the whole process, so far."""
    info = await redis.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def measure(operator: Redis, count: int, work: Callable[[int], Awaitable[object]]) -> Cost:
    """Do it `count` times, a few at once."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    began_s, began_cpu_s = time.perf_counter(), await cpu_s(operator)
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    took_s, took_cpu_s = time.perf_counter() - began_s, await cpu_s(operator) - began_cpu_s
    return Cost(took_cpu_s / count * 1e6, took_s / count * 1e6)


async def read_all(redis: Redis) -> list[str]:
    """As an edge does, once a second."""
    ids = sorted(await cast("Any", redis.smembers(IDS)))
    told = cast("list[str | None]", await redis.mget([f"b3os:node:{each}" for each in ids]))
    return [text for text in told if text is not None]


async def held_bytes(operator: Redis, name: str) -> int:
    """What Redis needs for a key."""
    return int(await cast("Any", operator.memory_usage(name, samples=0)))


async def aof_bytes(operator: Redis) -> int:
    """What the append-only file has grown to."""
    return int((await operator.info("persistence"))["aof_current_size"])


def table_bytes(texts: list[str]) -> tuple[int, float]:
    """What a parsed table of all nodes takes in an edge, and how long its parsing is."""
    tracemalloc.start()
    table = {told["id"]: told for told in map(json.loads, texts)}
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    times = []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        table = {told["id"]: told for told in map(json.loads, texts)}
        times.append((time.perf_counter() - began_s) * 1000)
    assert len(table) == len(texts)
    return size, min(times)


async def run(url: str, nodes: int) -> None:
    """Print the figures."""
    operator = connect_redis(as_user("operator", url))
    texts = [heartbeat_of(number) for number in range(nodes)]

    def beat(script: str, lifetime_ms: int) -> Callable[[int], Awaitable[object]]:
        loaded = operator.register_script(script)

        async def tell(number: int) -> None:
            node_id = f"node-{number % nodes:04}"
            arguments: list[str | int] = [node_id, texts[number % nodes], lifetime_ms, "b3os:node:"]
            await loaded(keys=[IDS, f"b3os:node:{node_id}"], args=arguments)

        return tell

    async def read(number: int) -> None:
        del number
        assert len(await read_all(operator)) == nodes

    # All heartbeats have to live while they are read, however slow this machine is.
    await measure(operator, nodes, beat(TELL, 600_000))
    one, ids = await held_bytes(operator, "b3os:node:node-0000"), await held_bytes(operator, IDS)
    reading = await measure(operator, 20 * ROUNDS, read)
    hearing = await measure(operator, 20 * ROUNDS, beat(TELL_AND_HEAR, 600_000))
    before = await aof_bytes(operator)
    telling = await measure(operator, ROUNDS * nodes, beat(TELL, LIFETIME_MS))
    written = (await aof_bytes(operator) - before) / (ROUNDS * nodes)
    size, parse_ms = table_bytes(texts)
    await operator.aclose()
    report(nodes, sum(map(len, texts)), one + ids / nodes, (telling, hearing, reading), written, size, parse_ms)


def report(
    nodes: int,
    told_bytes: int,
    held: float,
    costs: tuple[Cost, Cost, Cost],
    written_bytes: float,
    table: int,
    parse_ms: float,
) -> None:
    """The sums that follow."""
    telling, hearing, reading = costs
    beats = nodes / BEAT_EVERY_S
    print(f"{nodes} nodes, heartbeats of {told_bytes / nodes:.0f} bytes, {beats:.0f} beats a second")
    print(f"Redis holds                      {held:8.0f} bytes a node")
    print(
        f"a beat                           {telling.redis_us:8.1f} us of Redis, {telling.wall_us:.0f} us by the clock"
    )
    print(f"all beats                        {telling.redis_us * beats / 1e4:8.1f} % of Redis's core")
    print(
        f"append-only file                 {written_bytes * beats / 1e3:8.0f} kB a second, {written_bytes:.0f} a beat"
    )
    print(
        f"a beat that hears of all         {hearing.redis_us:8.1f} us of Redis, {hearing.wall_us:.0f} us by the clock"
    )
    print(f"all such beats                   {hearing.redis_us * beats / 1e4:8.1f} % of Redis's core")
    print(f"  and the network                {told_bytes * beats / 1e6:8.1f} MB a second")
    print(
        f"an edge's read                   {reading.redis_us:8.1f} us of Redis, {reading.wall_us:.0f} us by the clock"
    )
    print(f"an edge, once a second           {reading.redis_us / READ_EVERY_S / 1e4:8.2f} % of Redis's core")
    print(f"  and the network                {told_bytes / READ_EVERY_S / 1e6:8.2f} MB a second")
    print(f"an edge's table                  {table / 1e6:8.2f} MB, {parse_ms:.1f} ms to parse")


def main() -> None:
    """On a Redis of its own."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder, running_redis(Path(folder)) as url:
        asyncio.run(run(url, nodes))


if __name__ == "__main__":
    main()
