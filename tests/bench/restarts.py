"""`python -m tests.bench.restarts`: an engine core that is killed twenty times, and what is left of it in the node.

Each round kills the core of a real engine in the middle of a stream, asks until the node answers again, and weighs
the node: memory, descriptors, threads, children, and files in shared memory. Twenty rounds take a quarter of an hour
on two cores, half of it pauses. The columns should stay as they are from the second round on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

from tests.e2e.money.client import Call, Tenant
from tests.e2e.money.service import Part, Service, running_service, until
from tests.e2e.money.troubles import core_of

MODEL = "b3os/tiny-vision"
ENDLESS = [{"role": "user", "content": "Count from 1 to 100"}]
"""The tiny model counts to 60 and then says one thing for ever."""
COUNT = [{"role": "user", "content": "Count from 1 to 5"}]
STARTED_WITHIN_S = 300.0
ASK_EVERY_S = 0.5
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Weight:
    """What a node holds. `all_mib` is with its children; `shm` counts files, whoever made them."""

    rss_mib: int
    all_mib: int
    fds: int
    threads: int
    children: int
    zombies: int
    shm: int


@dataclass(frozen=True, slots=True)
class Round:
    """How one death went.

    Attributes:
        refused: how many asked too early.
        told_s: when the first of them was to come back; down_s: how long it took until an answer.
    """

    refused: int
    told_s: int
    down_s: float
    text: str
    weight: Weight


def weigh(node: Part) -> Weight:
    """The node now."""
    process = psutil.Process(node.process.pid)
    children = process.children(recursive=True)
    zombies = [child for child in children if _is_zombie(child)]
    memory = process.memory_info().rss
    return Weight(
        rss_mib=memory >> 20,
        all_mib=memory + sum(_rss(child) for child in children) >> 20,
        fds=process.num_fds(),
        threads=process.num_threads(),
        children=len(children),
        zombies=len(zombies),
        shm=len(list(SHARED_MEMORY.iterdir())),
    )


async def kill_and_come_back(service: Service, tenant: Tenant, number: signal.Signals = signal.SIGKILL) -> Round:
    """One round; `number` is what the core gets."""
    node, edge = service.more
    call = await tenant.opened([], edge=edge, model=MODEL, messages=ENDLESS, max_tokens=3000)
    await call.read(5)
    core = core_of(node)
    assert core is not None
    os.kill(core.pid, number)
    begun_s = time.monotonic()
    await call.read()
    assert call.code == "infer_backend_unavailable", call.code
    refused = [answer async for answer in _refusals(tenant, edge)]
    whole = await count_to_five(tenant, edge)
    down_s = time.monotonic() - begun_s
    for refusal in refused:
        told = (refusal.status, refusal.code)
        assert told == (503, "infer_backend_unavailable"), (told, refusal.request_id)
        assert int(refusal.headers["Retry-After"]) >= 1
    told_s = int(refused[0].headers["Retry-After"]) if refused else 0
    return Round(len(refused), told_s, down_s, whole.text, weigh(node))


async def count_to_five(tenant: Tenant, edge: Part) -> Call:
    """An answer that is always the same."""
    return await tenant.ask([], edge=edge, model=MODEL, messages=COUNT, temperature=0, max_tokens=100)


async def _refusals(tenant: Tenant, edge: Part) -> AsyncIterator[Call]:
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < STARTED_WITHIN_S:
        call = tenant.call([], edge=edge, model=MODEL, messages=COUNT, temperature=0, max_tokens=100)
        await call.begin()
        await call.read()
        if call.status == 200:
            return
        yield call
        await asyncio.sleep(ASK_EVERY_S)
    raise AssertionError("the engine did not come back")


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


async def main(rounds: int, home: Path) -> None:
    """Print a line for each round."""
    async with running_service(home, nodes=0, edges=0, real=True) as service:
        for part in service.more:
            await until(lambda part=part: service.is_ready(part), part.name, STARTED_WITHIN_S)  # type: ignore[misc]
        tenant = await Tenant.made(service)
        right = (await count_to_five(tenant, service.more[1])).text
        heads = ["round", "told_s", "down_s", "refused", *(field.name for field in fields(Weight))]
        print(" ".join(f"{head:>8}" for head in heads), flush=True)
        row: list[object] = [0, "", "", "", *astuple(weigh(service.more[0]))]
        print(" ".join(f"{value:>8}" for value in row), flush=True)
        for number in range(1, rounds + 1):
            done = await kill_and_come_back(service, tenant)
            assert done.text == right, (done.text, right)
            row = [number, done.told_s, f"{done.down_s:.1f}", done.refused, *astuple(done.weight)]
            print(" ".join(f"{value:>8}" for value in row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--home", type=Path, help="where logs are to be kept")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(asked.rounds, asked.home or Path(folder)))
