"""Whether the loop was late."""

from __future__ import annotations

import asyncio

from node.limits.heartbeat import BEAT_S, LATE_S, LATELY_S, Heartbeat


class Clock:
    """Goes on when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def beats_after(*pauses_s: float) -> tuple[Heartbeat, Clock]:
    """Its beats, so far apart. Its own timer is kept from going off: only these count."""
    clock = Clock()
    heartbeat = Heartbeat(clock)
    heartbeat.start()
    for pause_s in pauses_s:
        clock.now_s += pause_s
        heartbeat.stop()
        heartbeat.beat()
    heartbeat.stop()
    return heartbeat, clock


async def test_a_loop_in_time_is_not_late() -> None:
    heartbeat, _ = await beats_after(*[BEAT_S] * 5)
    assert not heartbeat.was_late()


async def test_a_stall_is_known_for_a_while() -> None:
    heartbeat, clock = await beats_after(BEAT_S + 2 * LATE_S, BEAT_S)
    assert heartbeat.was_late()
    clock.now_s += LATELY_S
    heartbeat.beat()
    heartbeat.stop()
    assert heartbeat.was_late()  # the time until this beat was a stall as well
    for _ in range(round(LATELY_S / BEAT_S) + 1):
        clock.now_s += BEAT_S
        heartbeat.beat()
        heartbeat.stop()
    assert not heartbeat.was_late()


async def test_a_stall_is_known_before_the_beat_that_it_kept_back() -> None:
    heartbeat, clock = await beats_after(BEAT_S)
    clock.now_s += BEAT_S + 2 * LATE_S
    assert heartbeat.was_late()


async def test_it_beats_by_itself_until_it_is_stopped() -> None:
    asked = 0

    def clock() -> float:
        nonlocal asked
        asked += 1
        return 0.0

    heartbeat = Heartbeat(clock)
    heartbeat.start()
    async with asyncio.timeout(20):
        while asked < 10:
            await asyncio.sleep(BEAT_S)
    heartbeat.stop()
