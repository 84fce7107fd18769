"""The routes of requests and usage, with what the node's own limiter and books write."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from edge.auth.scopes import SCOPES
from node.limits.bill import Ending, build_refused, build_settlement
from node.limits.limiter import Hold, Needs
from shared.ids import new_request_id
from shared.org_keys import refused_ids_key, refused_key, usage_key
from shared.request_log import KEEP_S
from shared.usage import UsageReader
from tests.integration.edge.parts import Edge, make_key, running_edge, running_redis
from tests.integration.edge.people import Page, make_user
from tests.integration.limits.parts import EVERYTHING, MODEL, NOON_MS, World, bill, hold_of, world_on
from tests.redis_server import free_port, url_of

REQUESTS, USAGE = "/v1/requests", "/v1/usage"
DAY_S = 86_400
COST = 100 * 3 + 20 * 15
ONE = {
    "requests": 1,
    "input_tokens": 100,
    "output_tokens": 20,
    "cached_tokens": 64,
    "image_bytes": 0,
    "cost_nano_usd": COST,
}
NOTHING = dict.fromkeys(ONE, 0)


@dataclass(frozen=True)
class Scene:
    """An organization whose node writes, at noon of 2026-11-30, and a caller who has a key of it."""

    world: World
    edge: Edge
    page: Page

    async def admit(self, key: str = "key_1", model: str = MODEL) -> Hold:
        return hold_of(await self.world.limiter().admit(self.world.subject(key=key, model=model), Needs()))

    async def finish(self, key: str = "key_1", model: str = MODEL) -> str:
        hold = await self.admit(key, model)
        await self.world.limiter().settle(bill(hold))
        return hold.subject.request_id

    async def refuse(self, key: str = "key_1") -> str:
        refused = self.world.subject(key=key)
        await self.world.limiter().log_refusal(self.world.org, build_refused(refused, TOO_MUCH))
        return refused.request_id

    async def ids(self, query: str = "") -> list[str]:
        return [each["id"] for each in (await self.page.get(f"{REQUESTS}{query}")).body["data"]]


TOO_MUCH = Ending("refused", 429, error_code="rate_limited")


@pytest.fixture
async def scene(edge_redis_url: str) -> AsyncIterator[Scene]:
    async with world_on(edge_redis_url) as world:

        def wall_clock() -> float:
            return world.clock.now_ms / 1000

        async with (
            running_edge(edge_redis_url, {"n1": "http://127.0.0.1:9"}, wall_clock) as edge,
            aiohttp.ClientSession(edge.url, cookie_jar=aiohttp.DummyCookieJar()) as client,
        ):
            _, credential = await make_key(edge.store, scopes=SCOPES, org=world.org)
            yield Scene(world, edge, Page(client, headers={"Authorization": f"Bearer {credential.token}"}))


async def test_a_request_is_told_whole_and_without_its_words(scene: Scene) -> None:
    scene.world.clock.now_ms += 7
    hold = await scene.admit()
    ending = Ending(
        "finished", 200, stop_reason="end_turn", ttft_ms=41.5, total_ms=212.9, phases_ms={"parse": 0.2, "queue": 1.5}
    )
    await scene.world.limiter().settle(build_settlement(hold, EVERYTHING, ending, 77))
    answer = await scene.page.get(f"{REQUESTS}/{hold.subject.request_id}")
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
    assert answer.body == {
        "id": hold.subject.request_id,
        "created_at": "2026-11-30T12:00:00.007Z",
        "key_id": "key_1",
        "project": "main",
        "model": MODEL,
        "node": "n1",
        "outcome": "finished",
        "status": 200,
        "error_code": None,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 20, "cached_tokens": 64, "image_bytes": 77},
        "cost_nano_usd": COST,
        "price": "in3-out15",
        "ttft_ms": 41.5,
        "total_ms": 212.9,
        "phases_ms": {"parse": 0.2, "queue": 1.5},
    }
    listed = await scene.page.get(REQUESTS)
    assert listed.body == {"data": [answer.body], "next_cursor": None}
    assert listed.headers["Cache-Control"] == "no-store"


async def test_a_request_in_flight_is_running_and_costs_nothing_yet(scene: Scene) -> None:
    hold = await scene.admit()
    told = (await scene.page.get(f"{REQUESTS}/{hold.subject.request_id}")).body
    assert (told["outcome"], told["status"], told["total_ms"]) == ("running", None, None)
    assert (told["usage"]["output_tokens"], told["cost_nano_usd"]) == (0, 0)
    assert await scene.ids("?status=running") == [hold.subject.request_id]
    assert (await scene.page.get(USAGE)).body["total"] == NOTHING
    await scene.world.limiter().settle(bill(hold))
    assert await scene.ids("?status=running") == []
    assert await scene.ids("?status=200") == [hold.subject.request_id]
    assert (await scene.page.get(USAGE)).body["total"] == ONE


async def test_a_refused_request_has_its_code_and_is_no_usage(scene: Scene) -> None:
    refused = await scene.refuse()
    told = (await scene.page.get(f"{REQUESTS}/{refused}")).body
    assert (told["outcome"], told["status"], told["error_code"]) == ("refused", 429, "rate_limited")
    assert await scene.ids("?status=429") == await scene.ids("?status=refused") == [refused]
    assert (await scene.page.get(USAGE)).body["data"] == []


async def test_pages_go_from_the_newest_to_the_oldest(scene: Scene) -> None:
    written = []
    for number in range(25):
        scene.world.clock.now_ms += 1
        written.append(await (scene.refuse() if number % 3 else scene.finish()))
    written.reverse()
    assert await scene.ids() == written[:20]
    seen: list[str] = []
    query, sizes = "?limit=10", []
    while query:
        page = (await scene.page.get(f"{REQUESTS}{query}")).body
        seen += [each["id"] for each in page["data"]]
        sizes.append(len(page["data"]))
        query = f"?limit=10&cursor={page['next_cursor']}" if page["next_cursor"] else ""
    assert (seen, sizes) == (written, [10, 10, 5])


async def test_a_list_is_narrowed_by_key_model_and_outcome(scene: Scene) -> None:
    first = await scene.finish(key="key_a")
    second = (await scene.admit(key="key_b", model="b3os/other")).subject.request_id
    third = await scene.refuse(key="key_b")
    assert await scene.ids("?key=key_a") == [first]
    assert await scene.ids("?model=b3os%2Fother") == await scene.ids("?model=b3os/other") == [second]
    assert sorted(await scene.ids("?key=key_b")) == sorted([second, third])
    assert await scene.ids(f"?key=key_b&model={MODEL}&status=429") == [third]
    assert await scene.ids("?status=finished") == [first]
    assert await scene.ids("?status=503") == await scene.ids("?key=nobody") == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        *((f"limit={wrong}", "limit") for wrong in ("0", "101", "-1", "1.0", "+5", "05", "x", "", "%D9%A5")),
        *((f"cursor={wrong}", "cursor") for wrong in ("", "+", "req_", "REQ_01M5T4YG394WEGR3J4Y01QB363")),
        *((f"status={wrong}", "status") for wrong in ("", "None", "600", "2000", "Running", "200,429")),
        ("key=", "key"),
        (f"key={'x' * 65}", "key"),
        (f"model={'x' * 201}", "model"),
        ("keys=key_1", "keys"),
        ("limit=1&limit=2", "limit"),
    ],
)
async def test_a_list_that_can_t_be_meant_is_refused_by_its_parameter(scene: Scene, query: str, param: str) -> None:
    assert (await scene.page.get(f"{REQUESTS}?{query}")).problem() == (400, "invalid_request", param)


async def test_another_organization_s_requests_are_not_there(scene: Scene, edge_redis_url: str) -> None:
    async with world_on(edge_redis_url) as other:
        hold = hold_of(await other.limiter().admit(other.subject(), Needs()))
        await other.limiter().settle(bill(hold))
        refused = other.subject()
        await other.limiter().log_refusal(other.org, build_refused(refused, TOO_MUCH))
    for foreign in (hold.subject.request_id, refused.request_id):
        answer = await scene.page.get(f"{REQUESTS}/{foreign}")
        assert answer.problem() == (404, "not_found", "id")
        unknown = await scene.page.get(f"{REQUESTS}/{new_request_id(NOON_MS)}")
        assert {**answer.body, "instance": ""} == {**unknown.body, "instance": ""}
        assert await scene.ids(f"?cursor={foreign}") == []
    assert await scene.ids() == []
    assert (await scene.page.get(USAGE)).body["data"] == []


@pytest.mark.parametrize("wrong", ["x", "req_x", "req_" + "0" * 27, "req_" + "I" * 26, "..%2Fusage", "%00", "%FF"])
async def test_what_is_no_id_is_a_404(scene: Scene, wrong: str) -> None:
    assert (await scene.page.get(f"{REQUESTS}/{wrong}")).problem() == (404, "not_found", "id")


async def test_a_session_sees_the_records_of_its_organization(scene: Scene) -> None:
    request_id = await scene.finish()
    user = await make_user(scene.edge, (scene.world.org, "member"))
    person = Page(scene.page.client)
    await person.log_in(user)
    assert (await person.get(f"{REQUESTS}/{request_id}")).body["id"] == request_id
    assert [each["id"] for each in (await person.get(REQUESTS)).body["data"]] == [request_id]
    assert (await person.get(USAGE)).body["total"] == ONE


async def test_after_30_days_a_request_is_gone_refused_or_not(scene: Scene) -> None:
    ids = [await scene.finish(), await scene.refuse()]
    scene.world.clock.wait(KEEP_S)
    assert sorted(await scene.ids()) == sorted(ids)
    assert [(await scene.page.get(f"{REQUESTS}/{each}")).status for each in ids] == [200, 200]
    scene.world.clock.wait(0.001)
    assert await scene.ids() == []
    assert [(await scene.page.get(f"{REQUESTS}/{each}")).status for each in ids] == [404, 404]
    assert await scene.world.redis.hlen(refused_key(scene.world.org)) == 1  # so it is not told, whatever is stored
    assert await scene.world.redis.zcard(refused_ids_key(scene.world.org)) == 1


async def use_days(scene: Scene) -> None:
    """October 1 to November 30, by two keys and two models: 4 requests."""
    noon_ms = scene.world.clock.now_ms
    for days, key, model in (
        (60, "key_b", MODEL),
        (29, "key_b", MODEL),
        (0, "key_a", MODEL),
        (0, "key_b", "b3os/other"),
    ):
        scene.world.clock.now_ms = noon_ms - days * DAY_S * 1000
        await scene.finish(key, model)
    scene.world.clock.now_ms = noon_ms


def times(number: int) -> dict[str, int]:
    return {name: number * count for name, count in ONE.items()}


async def test_usage_is_that_of_this_month_unless_asked_otherwise(scene: Scene) -> None:
    await use_days(scene)
    answer = await scene.page.get(USAGE)
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
    assert answer.body == {
        "by": "day",
        "from": "2026-11-01",
        "to": "2026-11-30",
        "data": [{"day": "2026-11-01", **ONE}, {"day": "2026-11-30", **times(2)}],
        "total": times(3),
    }


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("key", [{"key_id": "key_a", **ONE}, {"key_id": "key_b", **times(3)}]),
        ("model", [{"model": "b3os/other", **ONE}, {"model": MODEL, **times(3)}]),
        ("day", [{"day": "2026-10-01", **ONE}, {"day": "2026-11-01", **ONE}, {"day": "2026-11-30", **times(2)}]),
    ],
)
async def test_usage_is_summed_by_day_key_and_model(scene: Scene, by: str, rows: list[dict[str, Any]]) -> None:
    await use_days(scene)
    answer = await scene.page.get(f"{USAGE}?by={by}&from=2025-11-30&to=2026-11-30")  # 366 days
    assert (answer.body["data"], answer.body["total"]) == (rows, times(4))


@pytest.mark.parametrize(
    ("query", "first", "last", "requests"),
    [
        ("from=2026-11-30", "2026-11-30", "2026-11-30", 2),
        ("to=2026-10-15", "2026-10-01", "2026-10-15", 1),
        ("from=2026-10-02&to=2026-11-29", "2026-10-02", "2026-11-29", 1),
        ("from=2026-10-01&to=2026-10-01", "2026-10-01", "2026-10-01", 1),
        ("from=2027-01-01&to=2027-12-31", "2027-01-01", "2027-12-31", 0),
        ("from=0001-01-01&to=0001-01-01", "0001-01-01", "0001-01-01", 0),
        ("to=9999-12-31", "9999-12-01", "9999-12-31", 0),
    ],
)
async def test_days_are_included_on_both_sides(
    scene: Scene, query: str, first: str, last: str, requests: int
) -> None:
    await use_days(scene)
    told = (await scene.page.get(f"{USAGE}?{query}")).body
    assert (told["from"], told["to"], told["total"]["requests"]) == (first, last, requests)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        *(
            (f"from={wrong}", "from")
            for wrong in ("", "yesterday", "2026-02-30", "20261130", "2026-W48-1", "2026-1-1")
        ),
        ("to=2026-13-01", "to"),
        ("to=2026-11-30T00:00:00Z", "to"),
        ("from=2026-12-01", "from"),
        ("from=2026-11-02&to=2026-11-01", "from"),
        ("from=2025-11-29&to=2026-11-30", "from"),
        ("by=week", "by"),
        ("by=", "by"),
        ("form=2026-11-01", "form"),
        ("by=day&by=key", "by"),
    ],
)
async def test_usage_that_can_t_be_meant_is_refused_by_its_parameter(scene: Scene, query: str, param: str) -> None:
    assert (await scene.page.get(f"{USAGE}?{query}")).problem() == (400, "invalid_request", param)


async def test_a_day_with_very_many_counters_is_read_in_small_pieces_and_summed_right(scene: Scene) -> None:
    redis, org = scene.world.redis, scene.world.org
    for day in range(1, 4):
        for begun in range(0, 10_000, 1_000):
            counters: dict[Any, Any] = {f"tok_{at} b3os/m cost_nano_usd": day for at in range(begun, begun + 1_000)}
            await redis.hset(usage_key(org, f"2026-10-{day:02}"), mapping=counters)
    entered = 0

    @contextlib.asynccontextmanager
    async def step() -> AsyncIterator[None]:
        nonlocal entered
        entered += 1
        yield

    span = date(2026, 10, 1), date(2026, 10, 3)
    pieces = [piece async for piece in UsageReader(redis).scan_days(org, *span, step)]
    counts = [count for piece in pieces for count in piece]
    assert len(counts) == len({(count.day, count.key_id) for count in counts}) == 30_000
    assert sum(count.value for count in counts) == 60_000
    assert max(map(len, pieces)) <= 500  # a scan gives what was asked for, more or less
    assert entered >= 20
    assert len(await UsageReader(redis).fetch_days(org, *span)) == 30_000
    told = (await scene.page.get(f"{USAGE}?from=2026-10-01&to=2026-10-31")).body
    assert [(row["day"], row["cost_nano_usd"]) for row in told["data"]] == [
        *(("2026-10-01", 10_000), ("2026-10-02", 20_000), ("2026-10-03", 30_000))
    ]
    assert told["total"]["cost_nano_usd"] == 60_000


async def test_without_redis_both_are_a_503_that_says_when_to_try_again(tmp_path: Path) -> None:
    port = free_port()
    async with running_redis(tmp_path, port) as process:
        url = url_of("edge", port)
        async with (
            running_edge(url, {"n1": "http://127.0.0.1:9"}) as edge,
            aiohttp.ClientSession(edge.url, cookie_jar=aiohttp.DummyCookieJar()) as client,
        ):
            _, credential = await make_key(edge.store, scopes=SCOPES)
            page = Page(client, headers={"Authorization": f"Bearer {credential.token}"})
            assert (await page.get(USAGE)).status == 200  # from here on the key is remembered
            process.kill()
            await process.wait()
            for path in (REQUESTS, f"{REQUESTS}/{new_request_id()}", USAGE):
                answer = await page.get(path)
                assert answer.problem() == (503, "node_unavailable", None)
                assert answer.headers["Retry-After"] == "1"
