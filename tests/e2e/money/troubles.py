"""What may happen to the parts of a service, by name.

Decides how long each trouble lasts and that the part serves again after it. Must not know who asks meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from tests.e2e.money.service import Part, Service
from tests.e2e.money.wires import Far

FROZEN_S = (0.2, 8.0)
LONG_S = (32.0, 40.0)
"""Longer than a lease, so that other nodes bill what the cut off one goes on with."""
FORGOTTEN_S = 3.0
"""Until the system has given up the connections of a killed process."""

Act = Callable[[Service, Part, random.Random], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Whom it may befall now, what it is, and whether it needs links that can be cut."""

    whom: Callable[[Service], Sequence[Part]]
    act: Act
    cuts: bool = False


def core_of(node: Part) -> psutil.Process | None:
    """The process that computes, if there is one now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(node.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "EngineCore" in " ".join(child.cmdline()):
                    return child
    return None


def _nodes(service: Service) -> Sequence[Part]:
    return service.nodes


def _edges(service: Service) -> Sequence[Part]:
    return service.edges


def _store(service: Service) -> Sequence[Part]:
    return [service.store]


def _cored(service: Service) -> Sequence[Part]:
    return [part for part in service.more if part.is_alive and core_of(part) is not None]


async def _start(service: Service, part: Part) -> None:
    if part is service.store:
        await asyncio.to_thread(service.start_store)
    else:
        part.start()


def _killed(least_s: float, most_s: float) -> Act:
    async def act(service: Service, part: Part, rng: random.Random) -> None:
        part.kill()
        await asyncio.sleep(rng.uniform(least_s, most_s))
        await _start(service, part)

    return act


async def _stopped(service: Service, part: Part, rng: random.Random) -> None:
    del rng
    await asyncio.to_thread(part.stop)
    await _start(service, part)


async def _frozen(service: Service, part: Part, rng: random.Random) -> None:
    del service
    part.freeze()
    try:
        await asyncio.sleep(rng.uniform(*FROZEN_S))
    finally:
        part.thaw()


async def _core_killed(service: Service, part: Part, rng: random.Random) -> None:
    del service, rng
    if core := core_of(part):
        core.kill()


async def _core_frozen(service: Service, part: Part, rng: random.Random) -> None:
    del service
    if core := core_of(part):
        with contextlib.suppress(psutil.NoSuchProcess):
            core.suspend()
            await asyncio.sleep(rng.uniform(*FROZEN_S))
            core.resume()


def _cut(seconds: tuple[float, float], *fars: Far) -> Act:
    async def act(service: Service, part: Part, rng: random.Random) -> None:
        del service
        assert part.wires is not None
        part.wires.cut(*fars)
        try:
            await asyncio.sleep(rng.uniform(*seconds))
        finally:
            part.wires.mend(*fars)

    return act


async def _vanished(service: Service, part: Part, rng: random.Random) -> None:
    """As a machine that loses its power: nobody who waits for it is told, then or later."""
    assert part.wires is not None
    part.wires.cut("edges", "redis")
    try:
        part.kill()
        await asyncio.sleep(FORGOTTEN_S + rng.uniform(0, 3))
    finally:
        part.wires.mend("edges", "redis")
    await _start(service, part)


TROUBLES: Mapping[str, Trouble] = {
    "node killed": Trouble(_nodes, _killed(0, 2)),
    "node refusing": Trouble(_nodes, _killed(2, 6)),
    "node stopped": Trouble(_nodes, _stopped),
    "node frozen": Trouble(_nodes, _frozen),
    "node cut from edges": Trouble(_nodes, _cut(FROZEN_S, "edges"), cuts=True),
    "node cut off": Trouble(_nodes, _cut(FROZEN_S, "edges", "redis"), cuts=True),
    "node cut off for long": Trouble(_nodes, _cut(LONG_S, "edges", "redis"), cuts=True),
    "node vanished": Trouble(_nodes, _vanished, cuts=True),
    "edge killed": Trouble(_edges, _killed(0, 1)),
    "edge stopped": Trouble(_edges, _stopped),
    "edge frozen": Trouble(_edges, _frozen),
    "redis killed": Trouble(_store, _killed(0, 3)),
    "redis frozen": Trouble(_store, _frozen),
    "core killed": Trouble(_cored, _core_killed),
    "core frozen": Trouble(_cored, _core_frozen),
}
