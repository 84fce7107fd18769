"""What images cost a node, and what hostile ones cost it: `python -m tests.bench.images`.

Each file goes through `ImageDecoder` on uvloop. Wall is what its sender waits for; CPU is of the node, the process
that decodes and its forks together; loop is the longest that the node's loop computed at a stretch; memory is what
the file's fork had at most, with some 20 MiB that it shares with the process that it comes from.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import time
from pathlib import Path

import psutil
import uvloop
from PIL import Image

from node.images.decode import MAX_SIDE, BadImage
from node.images.decoder import ImageDecoder
from tests.hostile_images import HOSTILE, noise, saved
from tests.integration.egress.test_limits import Heartbeat

ROUNDS = 200
SHOWN = 12
MEMORY_EVERY_S = 0.002


def photograph(width: int, height: int, kind: str) -> bytes:
    """Smooth with some grain: what compresses as a photograph does."""
    smooth = Image.radial_gradient("L").resize((width, height))
    grain = Image.effect_noise((width, height), 20)
    return saved(Image.merge("RGB", (smooth, grain, Image.blend(smooth, grain, 0.3))), kind)


SMALL = {
    "PNG of noise, 256 x 256": saved(noise(256, 256), "PNG"),
    "JPEG of noise, 256 x 256": saved(noise(256, 256), "JPEG"),
    "WebP of noise, 256 x 256": saved(noise(256, 256), "WEBP"),
    "GIF of noise, 256 x 256": saved(noise(256, 256), "GIF"),
}
LARGE = {
    "JPEG photograph, 4000 x 3000": photograph(4_000, 3_000, "JPEG"),
    "PNG screenshot, 1920 x 1080": saved(Image.radial_gradient("L").resize((1_920, 1_080)).convert("RGB"), "PNG"),
}


class Cost:
    """Processor time of the node and everything that it started, in seconds."""

    def __init__(self, decoder: ImageDecoder) -> None:
        assert decoder.pid is not None
        self._zygote = psutil.Process(decoder.pid)
        self._before_s = self._used_s()

    def spent_s(self) -> float:
        """Since this was made."""
        return self._used_s() - self._before_s

    def _used_s(self) -> float:
        forks = self._zygote.cpu_times()
        return time.process_time() + forks.user + forks.system + forks.children_user + forks.children_system


class Memory:
    """Watches the forks; the most that one had, in MiB."""

    def __init__(self, decoder: ImageDecoder) -> None:
        self._zygote = psutil.Process(decoder.pid)
        self.most_mib = 0.0

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            for fork in self._zygote.children():
                self.most_mib = max(self.most_mib, _private_mib(fork.pid))
            await asyncio.sleep(MEMORY_EVERY_S)


def _private_mib(pid: int) -> float:
    """Of its own, at most until now."""
    try:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


async def repeated(decoder: ImageDecoder, name: str, data: bytes, rounds: int) -> None:
    """One row: the same file again and again."""
    cost, times_ms = Cost(decoder), []
    for _ in range(rounds):
        begun_s = time.perf_counter()
        await decoder.decode(data, MAX_SIDE)
        times_ms.append((time.perf_counter() - begun_s) * 1000)
    p95_ms = statistics.quantiles(times_ms, n=20)[18]
    cpu_s = cost.spent_s()
    print(
        f"| {name} | {len(data) / 1000:.0f} KB | {statistics.median(times_ms):.1f} ms | {p95_ms:.1f} ms"
        f" | {cpu_s / rounds * 1000:.1f} ms | {cpu_s / rounds * 200:.1f} s |",
        flush=True,
    )


async def hostile(decoder: ImageDecoder, data: bytes) -> tuple[str, float, float]:
    """What is said of a file, the seconds until then, and the loop's longest turn in seconds."""
    begun_s = time.perf_counter()
    async with Heartbeat() as heartbeat:
        try:
            await decoder.decode(data, MAX_SIDE)
            said = "decoded"
        except BadImage as error:
            said = str(error)
    return said, time.perf_counter() - begun_s, heartbeat.longest_s


async def forks_mib(decoder: ImageDecoder, data: bytes) -> float:
    """The most private memory that the fork of a file had."""
    memory = Memory(decoder)
    watching = asyncio.create_task(memory.watch())
    await asyncio.gather(decoder.decode(data, MAX_SIDE), return_exceptions=True)
    watching.cancel()
    return memory.most_mib


async def cpu_s_of(decoder: ImageDecoder, data: bytes) -> float:
    """Measured apart: the heartbeat keeps a processor busy."""
    cost = Cost(decoder)
    await asyncio.gather(decoder.decode(data, MAX_SIDE), return_exceptions=True)
    return cost.spent_s()


async def run() -> None:
    """Print both tables."""
    decoder = ImageDecoder()
    await decoder.start()
    print("| file | size | wall, median | p95 | CPU each | CPU of 200 |\n| --- | --- | --- | --- | --- | --- |")
    for name, data in SMALL.items():
        await repeated(decoder, name, data, ROUNDS)
    for name, data in LARGE.items():
        await repeated(decoder, name, data, ROUNDS // 10)
    rows = []
    for case in HOSTILE:
        if case.expected == "not an image":
            continue
        data = case.build()
        cpu_s = await cpu_s_of(decoder, data)
        said, wall_s, loop_s = await hostile(decoder, data)
        rows.append((cpu_s, case.name, len(data), said, wall_s, loop_s, await forks_mib(decoder, data)))
    print("\n| file | size | said | wall | CPU | loop | memory |\n| --- | --- | --- | --- | --- | --- | --- |")
    for cpu_s, name, size, said, wall_s, loop_s, mib in sorted(rows, reverse=True)[:SHOWN]:
        print(
            f"| {name} | {size / 1000:.0f} KB | {said} | {wall_s:.2f} s | {cpu_s:.2f} s"
            f" | {loop_s * 1000:.1f} ms | {mib:.0f} MiB |"
        )
    print(f"\nall {len(rows)}: the longest turn of the loop {max(row[5] for row in rows) * 1000:.1f} ms")
    await decoder.close()


def main() -> None:
    """Measure."""
    print(f"{os.cpu_count()} cores\n")
    uvloop.run(run())


if __name__ == "__main__":
    main()
