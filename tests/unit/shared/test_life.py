"""The three lines of a process's life, and the signal that ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from importlib.metadata import version

import pytest

from shared.life import Life
from shared.serve import wait_for_stop


def test_a_life_is_told_in_three_lines_and_its_end_is_measured_from_the_signal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    now_s = iter([100.0, 200.0, 201.2345])
    life = Life(lambda: next(now_s))
    life.note_start(listens="http://127.0.0.1:1")
    life.note_signal(signal.SIGTERM, 3, 30)
    life.note_end(2)
    assert [(line.levelname, line.msg, line.facts) for line in caplog.records] == [  # type: ignore[attr-defined]
        ("INFO", "started", {"version": version("b3os"), "listens": "http://127.0.0.1:1"}),
        ("INFO", "stopping", {"signal": "SIGTERM", "under_way": 3, "within_s": 30}),
        ("INFO", "stopped", {"took_s": 1.234, "cut": 2}),
    ]


async def test_the_first_signal_is_heard_and_no_other() -> None:
    loop, is_last_heard, heard = asyncio.get_running_loop(), asyncio.Event(), list[signal.Signals]()
    waiting = asyncio.create_task(wait_for_stop([], heard.append))
    loop.add_signal_handler(signal.SIGUSR1, is_last_heard.set)
    await asyncio.sleep(0)
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        async with asyncio.timeout(30):
            await is_last_heard.wait()
            await waiting
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            loop.remove_signal_handler(number)
    assert heard == [signal.SIGINT]
