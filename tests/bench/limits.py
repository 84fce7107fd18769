"""What one request costs Redis: its admission and its bill, with every limit set and a cap.

Run as `python -m tests.bench.limits`. The scripts' time is Redis's own count (`INFO commandstats`); its process also
reads, answers and writes the append-only file (`INFO cpu`). 250 µs a pair are allowed, which leaves 4000 requests a
second to one Redis.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from node.limits.bill import Ending, build_settlement
from node.limits.limiter import Admitted, Limits, Needs, Progress, SpendCap, Subject
from node.limits.prices import Price
from node.limits.redis_limiter import RedisLimiter
from node.limits.store import Store
from shared.ids import new_request_id
from shared.redis import connect_redis
from tests.redis_server import as_user, running_redis

WARM_UP, PAIRS, AT_ONCE = 500, 8000, 16
ALLOWED_US = 250
LIMITS = Limits(10**9, 10**12, 10**12, 10**6)


async def pair(limiter: RedisLimiter, number: int) -> None:
    """One request of one of eight keys."""
    key_id = f"key_{number % 8}"
    subject = Subject(
        new_request_id(), "bench", "main", key_id, "b3os/bench", "n1", Price(3, 15), LIMITS, SpendCap(2**52, "month")
    )
    admitted = await limiter.admit(subject, Needs(2000, 30_000, 1))
    assert isinstance(admitted, Admitted)
    progress = Progress(True, 900, 300, 512)
    await limiter.settle(build_settlement(admitted.hold, progress, Ending("finished", 200), 0))


async def run_all(work: list[Coroutine[Any, Any, None]]) -> None:
    """A few at once, as nodes do."""
    waiting = iter(work)

    async def worker() -> None:
        for each in waiting:
            await each

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def cpu_s(redis: Redis) -> float:
    """Of the whole process, so far."""
    info = await redis.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def measure(url: str) -> None:
    """Print the figures, with the rights that a node has."""
    redis, node = connect_redis(as_user("operator", url)), connect_redis(url)
    store = Store(node)
    limiter = RedisLimiter(store)
    await run_all([pair(limiter, number) for number in range(WARM_UP)])
    await redis.config_resetstat()
    began_s, began_cpu_s = time.perf_counter(), await cpu_s(redis)
    await run_all([pair(limiter, number) for number in range(PAIRS)])
    took_s, took_cpu_s = time.perf_counter() - began_s, await cpu_s(redis) - began_cpu_s
    scripts = (await redis.info("commandstats"))["cmdstat_evalsha"]
    assert scripts["calls"] == 2 * PAIRS
    memory = int((await redis.info("memory"))["used_memory"])
    await store.aclose()
    await node.aclose()
    await redis.aclose()
    script_us, process_us = scripts["usec"] / PAIRS, took_cpu_s / PAIRS * 1e6
    print(f"{PAIRS} requests, {AT_ONCE} at once, {PAIRS / took_s:.0f} a second with one client")
    print(f"scripts, admission and bill    {script_us:6.1f} us a request ({ALLOWED_US} allowed)")
    print(f"the whole Redis process        {process_us:6.1f} us a request, append-only file included")
    print(f"memory                         {memory / (PAIRS + WARM_UP):6.0f} bytes a request")
    if script_us > ALLOWED_US:
        raise SystemExit("too slow")


def main() -> None:
    """On a Redis of its own, configured as `b3os dev` does."""
    with tempfile.TemporaryDirectory() as folder, running_redis(Path(folder)) as url:
        asyncio.run(measure(url))


if __name__ == "__main__":
    main()
