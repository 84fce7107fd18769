"""What both processes count: requests, the loop's lateness, and the log lines that operators watch."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from shared.errors import NODE_UNAVAILABLE, ApiError
from shared.http_meter import HttpMeter
from shared.http_server import ContractRunner
from shared.loop_lag import LOOK_EVERY_S, LoopLag
from shared.watched import MESSAGES, WatchedLines
from shared.web import build_app, render_problem

ROOT = Path(__file__).parents[3]


def sample(collector: Collector, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry.get_sample_value(name, labels)


async def test_requests_are_counted_by_group_and_status_and_a_path_makes_no_series() -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        if request.match_info["id"] == "gone":
            raise ApiError(NODE_UNAVAILABLE, "nobody")
        if request.match_info["id"] == "slow":
            begun.set()
            await end.wait()
        return web.Response()

    meter = HttpMeter({"/things/{id}": "things"})
    app = build_app(lambda request: render_problem)
    app.router.add_get("/things/{id}", handle)
    app.router.add_get("/else/{id}", handle)
    meter.attach(app)
    runner = ContractRunner(app, render_problem)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with aiohttp.ClientSession(site.name) as client:
            for path in ("/things/1", "/things/2", "/things/gone", "/else/1", "/made-up-by-a-caller"):
                async with client.get(path) as answer:
                    await answer.read()
            running = asyncio.create_task(client.get("/things/slow"))
            await begun.wait()
            assert sample(meter, "b3os_http_running", route="things") == 1
            running.cancel()
        async with asyncio.timeout(60):
            while sample(meter, "b3os_http_running", route="things"):
                await asyncio.sleep(0.001)
    finally:
        await runner.cleanup()
    name = "b3os_http_requests_total"
    assert sample(meter, name, route="things", status="2xx") == 2
    assert sample(meter, name, route="things", status="5xx") == 1
    assert sample(meter, name, route="things", status="499") == 1
    assert sample(meter, name, route="other", status="2xx") == 1
    assert sample(meter, name, route="none", status="4xx") == 1
    assert sample(meter, "b3os_http_refusals_total", code="node_unavailable") == 1
    assert sample(meter, "b3os_http_request_seconds_count", route="things") == 4
    values = {value for each in meter.collect() for one in each.samples for value in one.labels.values()}
    assert not [value for value in values if "caller" in value or "/" in value]


async def test_the_loop_s_lateness_is_what_a_sleep_took_too_long() -> None:
    now_s = 100.0

    async def sleep(wanted_s: float) -> None:
        nonlocal now_s
        now_s += wanted_s + 0.3

    lag = LoopLag(lambda: now_s, sleep)
    await lag.look()
    assert sample(lag, "b3os_event_loop_lag_seconds_sum") == pytest.approx(0.3)
    assert sample(lag, "b3os_event_loop_lag_seconds_bucket", le="0.25") == 0
    assert sample(lag, "b3os_event_loop_lag_seconds_bucket", le="0.5") == 1
    assert LOOK_EVERY_S < 1


def test_tasks_are_counted_where_they_run_and_told_to_any_thread() -> None:
    asyncio.run(count_tasks())  # in a loop where nobody else's come and go


async def count_tasks() -> None:
    lag, end = LoopLag(sleep=lambda wanted_s: asyncio.sleep(0)), asyncio.Event()
    await lag.look()
    before = await asyncio.to_thread(sample, lag, "b3os_event_loop_tasks")
    assert before is not None
    more = [asyncio.create_task(end.wait()) for _ in range(5)]
    await lag.look()
    assert await asyncio.to_thread(sample, lag, "b3os_event_loop_tasks") == before + 5
    end.set()
    await asyncio.gather(*more)
    await lag.look()
    assert await asyncio.to_thread(sample, lag, "b3os_event_loop_tasks") == before


def test_the_counted_lines_are_those_that_operators_watch() -> None:
    watched = (ROOT / "docs" / "operations.md").read_text().partition("## What to watch")[2].partition("## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", watched, re.MULTILINE)
    assert sorted(MESSAGES) == sorted(text for cell in cells for text in re.findall("`([^`]+)`", cell))


def test_a_watched_line_is_counted_from_zero_and_others_make_no_series() -> None:
    lines = WatchedLines()
    logger = logging.Logger("b3os.test")
    logger.addHandler(lines)
    assert sample(lines, "b3os_log_lines_total", message="a bill failed") == 0
    logger.error("a bill failed", extra={"facts": {"request": "req_1"}})
    logger.warning("from a caller: %s", "a bill failed")
    assert sample(lines, "b3os_log_lines_total", message="a bill failed") == 1
    assert len({one.labels["message"] for each in lines.collect() for one in each.samples}) == len(MESSAGES)
