"""The engine's life: it comes back whatever its end was like, and requests hear when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from node.engine.scripted import ScriptedEngine
from node.engine.supervisor import Supervisor
from shared.errors import ApiError


class MortalEngine(ScriptedEngine):
    """Dies when told, and not well."""

    def die(self) -> None:
        self._dead.set_result("killed")

    async def shutdown(self) -> None:
        raise RuntimeError("the core is gone already")


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_an_engine_that_does_not_start_or_ends_badly_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.engine.supervisor.FIRST_BACKOFF_S", 0.01)
    engines: list[MortalEngine] = []
    attempts = 0

    async def factory() -> MortalEngine:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise RuntimeError("no memory")
        engines.append(MortalEngine())
        return engines[-1]

    supervisor = Supervisor(factory)
    with pytest.raises(ApiError, match="is starting; retry in 5 seconds"):
        supervisor.engine()
    supervisor.start()
    await until(lambda: supervisor.state == "ready")
    engines[0].die()
    await until(lambda: supervisor.state == "failed")
    with pytest.raises(ApiError, match="is restarting") as caught:
        supervisor.engine()
    assert caught.value.response_headers()["Retry-After"] == "5"
    await until(lambda: supervisor.state == "ready")
    assert supervisor.engine() is engines[1]
    await supervisor.stop()
    assert supervisor.running() == 0


async def test_a_drained_supervisor_stays_drained_though_its_engine_becomes_ready() -> None:
    begin = asyncio.Event()

    async def factory() -> ScriptedEngine:
        await begin.wait()
        return ScriptedEngine()

    supervisor = Supervisor(factory)
    supervisor.start()
    supervisor.drain()
    begin.set()
    await asyncio.sleep(0.01)
    assert supervisor.state == "draining"
    with pytest.raises(ApiError, match="is shutting down"):
        supervisor.engine()
    await supervisor.stop()
