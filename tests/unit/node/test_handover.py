"""Who goes back to the edge when a node stops, and who stays."""

from __future__ import annotations

import asyncio

import pytest

from node.handover import Handover
from shared.errors import BACKEND_UNAVAILABLE, ApiError


class Requests:
    """Tasks at places, each as far as it is told to be."""

    def __init__(self) -> None:
        self.handover = Handover(lambda: ApiError(BACKEND_UNAVAILABLE, "ask another"))
        self.ends: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.release = asyncio.Event()

    async def come(self, name: str, stage: str) -> asyncio.Task[None]:
        """`fresh`, `queued` or `begun`."""
        task = asyncio.create_task(self._be(name, stage))
        self._tasks.append(task)
        await asyncio.sleep(0)
        return task

    async def _be(self, name: str, stage: str) -> None:
        try:
            with self.handover.place() as place:
                if stage != "fresh":
                    self.handover.note_queued(place)
                if stage == "begun":
                    self.handover.note_begun(place)
                await self.release.wait()
            self.ends[name] = "answered"
        except ApiError:
            self.ends[name] = "back"
        except asyncio.CancelledError:
            self.ends[name] = "cancelled"

    async def all_end(self) -> dict[str, str]:
        """How each did."""
        await asyncio.sleep(0.01)
        self.release.set()
        await asyncio.gather(*self._tasks)
        return self.ends


@pytest.fixture
async def requests() -> Requests:
    return Requests()


async def test_what_the_engine_does_not_have_goes_back_and_the_rest_stays(requests: Requests) -> None:
    for name, stage in (("a", "begun"), ("b", "queued"), ("c", "fresh")):
        await requests.come(name, stage)
    requests.handover.close(0)
    assert await requests.all_end() == {"a": "answered", "b": "answered", "c": "back"}


async def test_of_those_in_the_engine_the_last_wait(requests: Requests) -> None:
    for name in ("a", "b", "c", "d"):
        await requests.come(name, "queued")
    requests.handover.close(3)
    assert await requests.all_end() == {"a": "answered", "b": "back", "c": "back", "d": "back"}


async def test_more_may_wait_in_the_engine_than_are_known_here(requests: Requests) -> None:
    await requests.come("a", "queued")
    requests.handover.close(5)
    assert await requests.all_end() == {"a": "back"}


async def test_who_comes_later_goes_back_at_once(requests: Requests) -> None:
    requests.handover.close(0)
    await requests.come("late", "fresh")
    assert requests.ends == {"late": "back"}


async def test_what_is_kept_stays_and_counts_and_comes_no_later(requests: Requests) -> None:
    with requests.handover.kept():
        requests.handover.close(0)
        await asyncio.sleep(0)
        assert not await requests.handover.wait_until_idle(0.001)
    assert await requests.handover.wait_until_idle(0)
    with pytest.raises(ApiError, match="ask another"), requests.handover.kept():
        raise AssertionError


async def test_a_client_that_left_is_not_told_anything(requests: Requests) -> None:
    task = await requests.come("a", "fresh")
    task.cancel()
    requests.handover.close(0)
    assert await requests.all_end() == {"a": "cancelled"}


async def test_idle_is_when_all_have_ended(requests: Requests) -> None:
    await requests.handover.wait_until_idle(0)
    await requests.come("a", "begun")
    waiting = asyncio.create_task(requests.handover.wait_until_idle(600))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await requests.all_end()
    async with asyncio.timeout(60):
        await waiting


async def test_waiting_for_idleness_has_an_end(requests: Requests) -> None:
    await requests.come("a", "begun")
    await requests.handover.wait_until_idle(0.001)
    assert requests.ends == {}
    await requests.all_end()
