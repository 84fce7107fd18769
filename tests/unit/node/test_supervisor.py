"""The engine's life: it comes back whatever its end was like, and requests hear when."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import pytest

from node.engine import history, supervisor
from node.engine.port import EngineLoad, EngineState, Guide, Piece, Prompt, Sampling, Started
from node.engine.scripted import ScriptedEngine
from node.engine.supervisor import Supervisor
from shared.errors import ApiError
from shared.hop import NOT_STARTED


class MortalEngine(ScriptedEngine):
    """Does not end well."""

    async def shutdown(self) -> None:
        raise RuntimeError("the core is gone already")


class Factory:
    """Makes engines, one after the other; the first `failing` starts fail."""

    def __init__(self, failing: int = 0) -> None:
        self.engines: list[MortalEngine] = []
        self.starts, self.failing = 0, failing

    async def __call__(self) -> MortalEngine:
        self.starts += 1
        if self.starts <= self.failing:
            raise RuntimeError("no memory")
        self.engines.append(MortalEngine())
        return self.engines[-1]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE_S", "GIVEN_UP_S"):
        monkeypatch.setattr(history, name, 0.001)
    monkeypatch.setattr(supervisor, "WATCH_EVERY_S", 0.001)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.001)


async def play(engine: ScriptedEngine, script: str) -> AsyncIterator[Piece]:
    rendered = await engine.render(Prompt([{"role": "user", "content": f'{{"scripted": {script}}}'}]))
    return aiter(engine.generate(rendered, Guide(), Sampling(max_tokens=100), "req_test"))


async def test_an_engine_that_does_not_start_or_ends_badly_is_started_again() -> None:
    factory = Factory(failing=1)
    watched = Supervisor(factory)
    with pytest.raises(ApiError, match="is starting; retry in 20 seconds") as caught:
        watched.engine()
    assert NOT_STARTED in caught.value.headers
    watched.start()
    await until(lambda: watched.state == "ready")
    await factory.engines[0].kill()
    await until(lambda: len(factory.engines) == 2 and watched.state == "ready")
    assert watched.engine() is factory.engines[1]
    assert watched.restarts == 2
    await watched.stop()
    assert watched.running() == 0


async def test_meanwhile_it_is_told_when_to_come_back_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "FIRST_PAUSE_S", 29.0)
    factory = Factory(failing=1)
    watched = Supervisor(factory, clock_s=lambda: 0.0)
    watched.start()
    await until(lambda: watched.state == "restarting")
    assert watched.reason == "RuntimeError: no memory"
    with pytest.raises(ApiError, match="is restarting; retry in 49 seconds") as caught:
        watched.engine()
    assert caught.value.response_headers()["Retry-After"] == "49"
    await watched.stop()


async def test_an_engine_that_never_works_is_not_set_up_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = Factory(failing=7)
    watched = Supervisor(factory)
    states: list[str] = []
    become = watched._become

    def note(state: EngineState) -> None:
        become(state)
        states.append(watched.state)

    monkeypatch.setattr(watched, "_become", note)
    watched.start()
    await until(lambda: watched.state == "ready")
    assert states == ["restarting"] * 4 + ["failed"] * 3 + ["ready"]
    assert watched.reason is None
    await watched.stop()


async def test_while_it_is_not_set_up_the_wait_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "GIVEN_UP_S", 300.0)
    watched = Supervisor(Factory(failing=100))
    watched.start()
    await until(lambda: watched.state == "failed")
    with pytest.raises(ApiError, match="is not set up; retry in 300 seconds"):
        watched.engine()
    await watched.stop()


async def test_an_engine_that_dies_at_its_first_request_again_and_again_is_not_set_up() -> None:
    factory = Factory()
    watched = Supervisor(factory)
    watched.start()
    for number in range(history.MOST_FAILURES):
        await until(lambda number=number: len(factory.engines) > number)  # type: ignore[misc]
        with pytest.raises(ApiError, match="is restarting"):
            await anext(await play(factory.engines[number], '[["die"]]'))
    await until(lambda: watched.state == "failed")
    await watched.stop()


async def test_whose_answer_fails_hears_of_the_pause_and_the_start_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "FIRST_PAUSE_S", 29.0)
    factory = Factory()
    watched = Supervisor(factory, clock_s=lambda: 0.0)
    watched.start()
    await until(lambda: watched.state == "ready")
    with pytest.raises(ApiError, match="is restarting; retry in 29 seconds") as caught:
        await anext(await play(factory.engines[0], '[["die"]]'))
    assert caught.value.retry_after_s == 29
    await watched.stop()


async def test_an_engine_that_hangs_is_killed_and_what_it_held_fails() -> None:
    seconds = itertools.count()
    factory = Factory()
    watched = Supervisor(factory, silence_s=50, clock_s=lambda: float(next(seconds)))
    watched.start()
    await until(lambda: watched.state == "ready")
    pieces = await play(factory.engines[0], '[["text", "Hel"], ["hang"]]')
    assert await anext(pieces) == Started()
    with pytest.raises(ApiError, match="is restarting"):
        _ = [piece async for piece in pieces]
    await until(lambda: len(factory.engines) == 2 and watched.state == "ready")
    assert watched.restarts == 1
    await watched.stop()


class UnwatchableEngine(MortalEngine):
    """Raises at what the supervisor asks of it, but for what a test leaves out."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.kills = fault, 0

    async def wait_until_dead(self) -> str:
        if self.fault == "wait":
            raise OSError("no such process")
        if self.fault == "cancelled":
            raise asyncio.CancelledError
        return await super().wait_until_dead()

    def load(self) -> EngineLoad:
        if self.fault == "load":
            raise OSError("no such process")
        return super().load()

    async def kill(self, cause: str = "it was killed") -> None:
        self.kills += 1
        await super().kill(cause)
        if self.fault == "kill":
            raise OSError("no such process")


@pytest.mark.parametrize("fault", ["wait", "cancelled", "load", "kill"])
async def test_an_engine_that_can_not_be_watched_or_killed_is_replaced(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(supervisor, "ENDS_WITHIN_S", 0.01)
    engines: list[ScriptedEngine] = []

    async def factory() -> ScriptedEngine:
        engines.append(ScriptedEngine() if engines else UnwatchableEngine(fault))
        return engines[-1]

    seconds = itertools.count()
    watched = Supervisor(factory, silence_s=50, clock_s=lambda: float(next(seconds)))
    watched.start()
    await until(lambda: bool(engines))
    bad = engines[0]
    assert isinstance(bad, UnwatchableEngine)
    if fault == "kill":
        with pytest.raises(ApiError, match="is restarting"):
            _ = [piece async for piece in await play(bad, '[["text", "Hel"], ["hang"]]')]
    await until(lambda: len(engines) == 2 and watched.state == "ready")
    assert watched.engine() is engines[1]
    assert bad.kills == (0 if fault == "cancelled" else 1)
    await watched.stop()


async def test_a_drain_ends_though_its_engine_can_not_be_killed() -> None:
    engine = UnwatchableEngine("kill")

    async def factory() -> ScriptedEngine:
        return engine

    watched = Supervisor(factory)
    watched.start()
    await until(lambda: watched.state == "ready")
    with watched.handover.place() as place:
        watched.handover.note_begun(place)
        watched.drain()
        assert await watched.drained(0.001) == 1
    assert engine.kills == 1
    await watched.stop()


async def test_an_engine_that_pauses_does_not_hang() -> None:
    seconds = itertools.count()
    factory = Factory()
    watched = Supervisor(factory, silence_s=5, clock_s=lambda: float(next(seconds)))
    watched.start()
    await until(lambda: watched.state == "ready")
    task = asyncio.ensure_future(anext(await play(factory.engines[0], '[["pause", 600], ["text", "Hel"]]')))
    begun_s = next(seconds)
    await until(lambda: next(seconds) > begun_s + 100)
    assert (watched.state, watched.restarts) == ("ready", 0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await watched.stop()


async def test_a_start_that_takes_too_long_is_ended_and_made_again() -> None:
    ended = 0

    async def factory() -> ScriptedEngine:
        nonlocal ended
        if ended == 0:
            try:
                await asyncio.Event().wait()
            finally:
                ended += 1
        return ScriptedEngine()

    watched = Supervisor(factory, start_s=0.01)
    watched.start()
    await until(lambda: watched.state == "ready")
    assert (ended, watched.restarts) == (1, 1)
    await watched.stop()


async def test_a_start_that_can_not_even_be_ended_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "ENDS_WITHIN_S", 0.01)
    starts, is_over = 0, asyncio.Event()

    async def factory() -> ScriptedEngine:
        nonlocal starts
        starts += 1
        while not is_over.is_set():
            try:
                await is_over.wait()
            except asyncio.CancelledError:
                continue
        return ScriptedEngine()

    watched = Supervisor(factory, start_s=0.01)
    watched.start()
    await until(lambda: watched.state == "failed")
    assert (starts, watched.reason) == (1, "its start took longer than 0.01 s")
    is_over.set()
    await until(lambda: watched.state == "ready")
    assert starts == 1
    await watched.stop()


async def test_a_drained_supervisor_stays_drained_though_its_engine_becomes_ready() -> None:
    begin = asyncio.Event()
    made: list[ScriptedEngine] = []

    async def factory() -> ScriptedEngine:
        await begin.wait()
        made.append(ScriptedEngine())
        return made[0]

    watched = Supervisor(factory)
    watched.start()
    watched.drain()
    begin.set()
    await until(lambda: watched.load().steps > 0)
    assert watched.state == "draining"
    with pytest.raises(ApiError, match="is shutting down"):
        watched.engine()
    await made[0].kill()
    await until(lambda: watched._engine is None)
    await watched.stop()
    assert len(made) == 1


async def test_what_outlasts_a_drain_fails() -> None:
    factory = Factory()
    watched = Supervisor(factory)
    watched.start()
    await until(lambda: watched.state == "ready")
    pieces = await play(factory.engines[0], '[["text", "Hel"], ["pause", 600]]')
    await anext(pieces)
    with watched.handover.place() as place:
        watched.handover.note_begun(place)
        watched.drain()
        assert await watched.drained(0.001) == 1
    with pytest.raises(ApiError, match="is restarting"):
        _ = [piece async for piece in pieces]
    assert len(factory.engines) == 1
    await watched.stop()
