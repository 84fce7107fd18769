"""Limits, caps and bills over HTTP: a node on a real Redis, its edge's tokens with limits in them."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import aiohttp
import pytest
from redis.asyncio import Redis

from node.engine.port import Prompt
from node.engine.scripted import ScriptedEngine, ScriptedPrompt
from node.limits.limiter import Admitted, Booking, Needs, Settlement
from node.limits.names import leases_key, ledger_key
from node.limits.prices import Price
from node.limits.redis_limiter import RedisLimiter
from node.limits.rules import build_subject
from node.limits.store import Store
from node.wire.parse import parse_request
from node.wire.request import MessagesRequest
from shared.hop import REPEATED
from shared.ids import new_request_id
from shared.node_token import Caller, mint
from shared.org_keys import spend_key
from shared.request_log import RequestLog, RequestRecord
from shared.tasks import end_task
from shared.usage import UsageReader
from tests.integration.node.conftest import CALLER, KEY, MODEL, PATH, Node, Start
from tests.integration.node.test_messages import refusal
from tests.redis_server import as_user

PRICED = replace(MODEL, input_nano_usd_per_token=3, output_nano_usd_per_token=10)
COUNT = f"{PATH}/count_tokens"
_numbers = itertools.count()


def caller(cap: dict[str, Any] | None = None, **limits: int) -> Caller:
    """Of an organization that no other test knows."""
    org = f"org_{time.time_ns()}_{next(_numbers)}"
    return replace(CALLER, org=org, limits=limits, spend_cap=cap)


class Client:
    """Asks as one caller, and looks at what is left of it in Redis."""

    def __init__(self, node: Node, redis: Redis, who: Caller) -> None:
        self.node, self.redis, self.who = node, redis, who

    def body(self, script: list[Any], **fields: Any) -> bytes:
        text = json.dumps({"scripted": script})
        content = [{"role": "user", "content": text}]
        return json.dumps({"model": PRICED.served_id, "max_tokens": 100, "messages": content} | fields).encode()

    async def ask(
        self, script: list[Any] | None = None, path: str = PATH, **fields: Any
    ) -> tuple[str, aiohttp.ClientResponse]:
        """The request's id, and the head of its answer."""
        raw = self.body([["text", "a "], ["text", "b"]] if script is None else script, **fields)
        return await self.send(raw, path)

    async def send(
        self, raw: bytes, path: str = PATH, *, request_id: str | None = None, **more: str
    ) -> tuple[str, aiohttp.ClientResponse]:
        """The same for any body. `request_id` makes it another attempt at that request, `more` are headers."""
        request_id = request_id or new_request_id()
        now_s = int(time.time())
        token = mint(KEY, self.who, audience=["n1"], request_id=request_id, method="POST", path=path, now_s=now_s)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} | more
        answer = await self.node.session.post(self.node.url + path, data=raw, headers=headers)
        self.node.answers.append(answer)  # closed with the session, should nobody read it
        return request_id, answer

    async def record(self, request_id: str, *, is_running: bool = False) -> RequestRecord:
        """Its entry in the log, once it has ended, or while it hasn't."""
        async with asyncio.timeout(60):
            while True:
                found = await RequestLog(self.redis).fetch(self.who.org, request_id)
                if found is not None and (found.outcome == "running") == is_running:
                    return found
                await asyncio.sleep(0.01)

    async def bill(self) -> list[dict[str, str]]:
        """All entries of the organization's ledger."""
        days = (datetime.now(UTC), datetime.now(UTC) - timedelta(days=1))
        months = sorted({day.strftime("%Y-%m") for day in days})
        found: list[dict[str, str]] = []
        for month in months:
            entries = cast("Any", await self.redis.xrange(ledger_key(self.who.org, month)))
            found += [fields for _, fields in entries]
        return found

    async def is_quiet(self) -> bool:
        """Nothing is in flight, and nothing is held."""
        held = await self.redis.hget(spend_key(self.who.org, self.who.actor_id, "total"), "held")
        return not await self.redis.zcard(leases_key(self.who.org)) and int(held or 0) == 0


Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def connect(start_node: Start, redis_url: str) -> Any:
    node = await start_node(model=PRICED)
    redis = Redis.from_url(as_user("operator", redis_url), decode_responses=True)

    async def make(cap: dict[str, Any] | None = None, **limits: int) -> Client:
        return Client(node, redis, caller(cap, **limits))

    yield make
    await redis.aclose()


async def test_an_answer_is_billed_once_to_the_token(connect: Connect) -> None:
    client = await connect()
    for stream in (False, True):
        request_id, answer = await client.ask(stream=stream)
        await answer.read()
        assert answer.status == 200
        assert "RateLimit-Limit" not in answer.headers
        record = await client.record(request_id)
        assert (record.outcome, record.status, record.stop_reason) == ("finished", 200, "end_turn")
        assert (record.input_tokens, record.output_tokens) == (6, 2)
        assert record.cost_nano_usd == 6 * 3 + 2 * 10
        assert "admission" in record.phases_ms
    bill = await client.bill()
    assert [entry["cost_nano_usd"] for entry in bill] == ["38", "38"]
    assert await client.is_quiet()
    today = datetime.now(UTC).date()
    rows = await UsageReader(client.redis).fetch_days(client.who.org, today - timedelta(days=1), today)
    assert sum(row.cost_nano_usd for row in rows) == 76


async def test_requests_a_minute_are_told_on_success_and_on_refusal(connect: Connect) -> None:
    client = await connect(requests_per_minute=2)
    for left in ("1", "0"):
        _, answer = await client.ask()
        assert answer.status == 200
        assert (answer.headers["RateLimit-Limit"], answer.headers["RateLimit-Remaining"]) == ("2", left)
    request_id, answer = await client.ask()
    assert await refusal(answer) == (429, "rate_limited", None)
    wait = int(answer.headers["Retry-After"])
    assert 55 <= wait <= 65
    assert answer.headers["RateLimit-Limit"] == "2"
    assert answer.headers["RateLimit-Remaining"] == "0"
    assert int(answer.headers["RateLimit-Reset"]) == wait
    assert "x-should-retry" not in answer.headers
    words = (await answer.json())["error"]
    assert words["type"] == "rate_limit_error"
    for part in ("2 requests a minute", PRICED.served_id, f"; retry in {wait} seconds"):
        assert part in words["message"]
    record = await client.record(request_id)
    assert (record.outcome, record.status, record.error_code) == ("refused", 429, "rate_limited")
    assert record.cost_nano_usd == 0
    assert len(await client.bill()) == 2


async def test_requests_at_once(connect: Connect) -> None:
    client = await connect(concurrent_requests=1)
    _, first = await client.ask([["text", "a"], ["pause", 600]], stream=True)
    _, second = await client.ask()
    assert await refusal(second) == (429, "concurrency_limited", None)
    assert int(second.headers["Retry-After"]) >= 1
    first.close()
    async with asyncio.timeout(60):
        while not await client.is_quiet():
            await asyncio.sleep(0.01)
    assert (await client.ask())[1].status == 200


async def test_a_guess_is_made_exact_once_the_prompt_is_counted(connect: Connect) -> None:
    client = await connect(tokens_per_minute=300)
    for _ in range(4):  # 7 tokens each; the rest of the guess is given back
        assert (await client.ask(max_tokens=200))[1].status == 200
    _, answer = await client.ask(max_tokens=290)
    assert await refusal(answer) == (429, "rate_limited", None)
    assert "300 tokens a minute" in (await answer.json())["error"]["message"]


async def test_what_can_never_fit_is_no_429(connect: Connect) -> None:
    client = await connect(tokens_per_minute=50)
    request_id, answer = await client.ask(max_tokens=51)
    assert await refusal(answer) == (400, "invalid_request", "max_tokens")
    assert answer.headers["x-should-retry"] == "false"
    assert (await client.record(request_id)).status == 400
    assert (await client.ask(max_tokens=40))[1].status == 200


@pytest.mark.parametrize("name", ["concurrent_requests", "requests_per_minute", "tokens_per_minute"])
async def test_a_limit_of_0_promises_nobody_that_waiting_helps(connect: Connect, name: str) -> None:
    client = await connect(**{name: 0})
    for _ in range(2):
        request_id, answer = await client.ask()
        assert await refusal(answer) == (400, "invalid_request", None)
        assert answer.headers["x-should-retry"] == "false"
        assert not {"Retry-After", "RateLimit-Reset"} & set(answer.headers)
        assert (await client.record(request_id)).status == 400
    assert await client.is_quiet()


@pytest.mark.parametrize("period", ["day", "month", "total"])
async def test_a_spend_cap_stands_against_the_worst_case(connect: Connect, period: str) -> None:
    client = await connect({"nano_usd": 1500, "period": period})
    for _ in range(3):  # 100 x 10 for the answer and some for the prompt at most, and 35 in the end
        assert (await client.ask())[1].status == 200
    request_id, answer = await client.ask(max_tokens=145)
    assert await refusal(answer) == (402, "spend_cap_reached", None)
    assert (await answer.json())["error"]["type"] == "billing_error"
    assert answer.headers["x-should-retry"] == "false"
    assert (await client.record(request_id)).error_code == "spend_cap_reached"
    assert await client.is_quiet()


async def test_counting_is_a_request_and_free(connect: Connect) -> None:
    client = await connect({"nano_usd": 1, "period": "total"}, requests_per_minute=1, tokens_per_minute=1)
    request_id, answer = await client.ask(path=COUNT)
    assert answer.status == 200
    record = await client.record(request_id)
    assert (record.outcome, record.input_tokens, record.cost_nano_usd) == ("finished", 0, 0)
    assert await refusal((await client.ask(path=COUNT))[1]) == (429, "rate_limited", None)


async def test_who_leaves_pays_to_the_last_token_that_was_generated(connect: Connect) -> None:
    client = await connect()
    request_id, answer = await client.ask([["text", "a"], ["text", "b"], ["text", "c"], ["pause", 600]], stream=True)
    while b'"c"' not in await answer.content.readline():
        pass
    running = await client.record(request_id, is_running=True)
    assert (running.outcome, running.cost_nano_usd) == ("running", 0)
    answer.close()
    record = await client.record(request_id)
    assert (record.outcome, record.output_tokens) == ("client_gone", 3)
    assert [entry["cost_nano_usd"] for entry in await client.bill()] == [str(record.input_tokens * 3 + 30)]
    assert await client.is_quiet()


async def test_who_leaves_before_the_first_token_pays_nothing(connect: Connect) -> None:
    client = await connect()
    asking = asyncio.create_task(client.ask([["pause", 600], ["text", "a"]]))
    async with asyncio.timeout(60):
        while not await client.redis.zcard(leases_key(client.who.org)):
            await asyncio.sleep(0.01)
    asking.cancel()
    async with asyncio.timeout(60):
        while not await client.is_quiet():
            await asyncio.sleep(0.01)
    assert {entry["cost_nano_usd"] for entry in await client.bill()} <= {"0"}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_dies_in_the_middle_is_billed_to_the_real_count(connect: Connect, stream: bool) -> None:
    client = await connect()
    request_id, answer = await client.ask([["text", "a"], ["text", "b"], ["fail"]], stream=stream)
    await answer.read()
    assert answer.status == (200 if stream else 503)
    record = await client.record(request_id)
    assert (record.outcome, record.output_tokens) == ("failed", 2)
    assert record.error_code == "infer_backend_unavailable"
    assert await client.is_quiet()


async def test_a_stop_sequence_bills_what_was_generated(connect: Connect) -> None:
    client = await connect()
    script = [["text", "a "], ["text", "stop"], ["text", "never"]]
    request_id, answer = await client.ask(script, stop_sequences=["stop"])
    assert (await answer.json())["stop_reason"] == "stop_sequence"
    record = await client.record(request_id)
    assert (record.stop_reason, record.output_tokens) == ("stop_sequence", 2)


async def test_what_is_refused_for_its_content_is_one_of_the_minute_and_logged_and_free(connect: Connect) -> None:
    client = await connect(requests_per_minute=4)
    faults: tuple[tuple[dict[str, Any], int], ...] = (
        ({"max_tokens": 0}, 400),
        ({"model": "b3os/other"}, 404),
        ({"x": 1}, 400),
    )
    for left, (fields, status) in zip(("3", "2", "1"), faults, strict=True):
        request_id, answer = await client.ask(**fields)
        assert answer.status == status
        assert (answer.headers["RateLimit-Limit"], answer.headers["RateLimit-Remaining"]) == ("4", left)
        record = await client.record(request_id)
        assert (record.outcome, record.status, record.cost_nano_usd) == ("refused", status, 0)
    image = {"type": "image", "source": {"type": "url", "url": "https://127.0.0.1/"}}
    request_id, answer = await client.ask(messages=[{"role": "user", "content": [image]}])
    assert await refusal(answer) == (403, "egress_denied", "messages.0.content.0.source.url")
    record = await client.record(request_id)
    assert (record.outcome, record.error_code, record.cost_nano_usd) == ("refused", "egress_denied", 0)
    assert await client.is_quiet()


@pytest.mark.parametrize("path", [PATH, COUNT])
@pytest.mark.parametrize("limits", [{"requests_per_minute": 1}, {"concurrent_requests": 1}])
async def test_nobody_over_a_limit_has_his_body_read(connect: Connect, path: str, limits: dict[str, int]) -> None:
    client = await connect(**limits)
    _, running = await client.ask([["text", "a"], ["pause", 600]], stream=True)
    _, answer = await client.send(b"this is no JSON", path)
    assert answer.status == 429
    running.close()


@pytest.mark.parametrize("used_up", ["tokens", "cap"])
async def test_nobody_out_of_tokens_or_money_has_his_body_read(connect: Connect, used_up: str) -> None:
    """The one that runs leaves a token less than any request needs, or as little money."""
    script: list[Any] = [["text", "a"], ["pause", 600]]
    prompt: int = (await (await (await connect()).ask(script, COUNT))[1].json())["input_tokens"]
    if used_up == "tokens":
        client = await connect(tokens_per_minute=prompt + 100 + 1)
    else:
        client = await connect({"nano_usd": prompt * 3 + 100 * 10 + 12, "period": "month"})
    _, running = await client.ask(script, stream=True)
    assert running.status == 200
    for _ in range(2):  # told by Redis, and by the node's memory
        request_id, answer = await client.send(b"this is no JSON")
        if used_up == "tokens":
            assert await refusal(answer) == (429, "rate_limited", None)
            assert (answer.headers["RateLimit-Limit"], answer.headers["RateLimit-Remaining"]) == (
                str(prompt + 101),
                "1",
            )
            assert 55 <= int(answer.headers["Retry-After"]) <= 65
        else:
            assert await refusal(answer) == (402, "spend_cap_reached", None)
        assert (await client.record(request_id)).outcome == "refused"
    assert (await client.ask(script, COUNT))[1].status == 200  # that is free
    running.close()


async def test_what_a_request_is_let_in_with_comes_back_where_its_body_makes_no_sense(connect: Connect) -> None:
    client = await connect({"nano_usd": 13, "period": "total"}, tokens_per_minute=2)
    for _ in range(3):
        assert (await client.send(b"this is no JSON"))[1].status == 400
        assert await client.is_quiet()


async def test_a_request_that_another_node_let_in_is_not_told_to_wait_by_this_one(connect: Connect) -> None:
    """It was one of the minute's requests there, and whoever comes after it has to wait."""
    client = await connect(requests_per_minute=1)
    limiter = RedisLimiter(Store(client.redis))
    lost = build_subject(client.who, new_request_id(), model=PRICED.served_id, node="n0", price=Price(3, 10))
    assert isinstance(await limiter.admit(lost, Needs(2, 13)), Admitted)
    assert (await client.ask())[1].status == 429
    again = client.body([["text", "a"]])
    assert (await client.send(again))[1].status == 429
    _, answer = await client.send(again, request_id=lost.request_id, **{REPEATED: "2"})
    assert answer.status == 200
    assert (await client.send(again, **{REPEATED: "2"}))[1].status == 429  # Redis knows nothing of this one
    assert [entry["node"] for entry in await client.bill()] == ["n1"]


async def test_no_body_is_read_for_an_engine_that_is_not_there(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(requests_per_minute=1)
    with monkeypatch.context() as patched:
        patched.setattr(client.node.supervisor, "state", "failed")
        assert (await client.send(b"this is no JSON"))[1].status == 503
    assert (await client.ask())[1].status == 200  # and it was none of the minute's requests


async def test_a_large_prompt_is_not_rendered_for_who_is_out_of_tokens(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(tokens_per_minute=20_000, requests_per_minute=9)
    rendered: list[Prompt] = []
    render = client.node.engine.render

    async def noting(prompt: Prompt) -> ScriptedPrompt:
        rendered.append(prompt)
        return await render(prompt)

    monkeypatch.setattr(client.node.engine, "render", noting)
    large = "ab " * 15_000  # of 15,000 words; the guess is 11,250
    statuses = [(await client.ask(messages=[{"role": "user", "content": large}]))[1].status for _ in range(2)]
    assert (statuses, len(rendered)) == ([200, 429], 1)
    _, answer = await client.ask(max_tokens=6000)  # a small one is counted first
    assert (answer.status, len(rendered)) == (429, 2)
    assert answer.headers["RateLimit-Limit"] == "20000"


async def test_others_are_read_while_one_organization_sends_much_to_read(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy, other = await connect(), await connect()
    begun, may_end = threading.Semaphore(0), threading.Event()

    def parse_long(body: bytes) -> MessagesRequest:
        if b"greedy" in body:
            begun.release()
            assert may_end.wait(120)
        return parse_request(body)

    monkeypatch.setattr("node.messages.parse_request", parse_long)
    asked = [asyncio.create_task(greedy.ask(metadata={"user_id": "greedy" * 5000})) for _ in range(3)]
    try:
        assert await asyncio.to_thread(begun.acquire, timeout=60)
        for _ in range(3):
            assert (await other.ask(metadata={"user_id": "other" * 5000}))[1].status == 200
        assert (await other.ask())[1].status == 200
        assert not begun.acquire(blocking=False)  # the second of the greedy one's waits for the first
    finally:
        may_end.set()
    assert [answer.status for _, answer in await asyncio.gather(*asked)] == [200] * 3


async def test_a_model_runtime_that_is_away_is_logged(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await connect()
    monkeypatch.setattr(client.node.supervisor, "state", "failed")
    request_id, answer = await client.ask()
    assert (await refusal(answer))[:2] == (503, "infer_backend_unavailable")
    assert (await client.record(request_id)).status == 503


async def test_of_two_hundred_at_once_as_many_pass_as_may(connect: Connect) -> None:
    client = await connect(concurrent_requests=50)
    endless = [["text", "a"], ["pause", 600]]
    asked = [asyncio.create_task(client.ask(endless, stream=True)) for _ in range(200)]
    answers = [answer for _, answer in await asyncio.gather(*asked)]
    statuses = [answer.status for answer in answers]
    assert (statuses.count(200), statuses.count(429)) == (50, 150)
    for answer in answers:
        answer.close()
    assert isinstance(client.node.engine, ScriptedEngine)
    async with asyncio.timeout(60):
        while not await client.is_quiet():
            await asyncio.sleep(0.05)
    assert len(await client.bill()) == 50


async def test_who_leaves_with_the_last_event_has_had_a_whole_answer(connect: Connect) -> None:
    client = await connect()
    for _ in range(20):
        request_id, answer = await client.ask([["text", "a"]], stream=True)
        while b"message_stop" not in await answer.content.readline():
            pass
        answer.close()
        record = await client.record(request_id)
        assert (record.outcome, record.stop_reason) == ("finished", "end_turn")


async def test_a_call_nested_deeper_than_a_writer_of_json_goes_is_told_and_billed_as_it_was_written(
    connect: Connect,
) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    client = await connect()
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    request_id, answer = await client.ask([["tool", "f", {"a": deep}]], tools=tools)
    assert answer.status == 200
    assert (await answer.json())["content"][0]["input"] == {"a": deep}
    record = await client.record(request_id)
    assert (record.outcome, record.status, record.stop_reason) == ("finished", 200, "tool_use")


async def test_an_answer_that_can_not_be_written_is_in_the_books_as_the_failure_that_its_client_hears(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(events: object) -> None:
        raise TypeError("a fault of ours")

    monkeypatch.setattr("node.messages.accumulate", fail)
    client = await connect()
    request_id, answer = await client.ask()
    assert await refusal(answer) == (500, "internal", None)
    record = await client.record(request_id)
    assert (record.outcome, record.status, record.error_code) == ("failed", 500, "internal")
    assert (record.output_tokens, record.stop_reason) == (2, None)
    assert len(await client.bill()) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("script", [[["text", "a"]], [["text", "a "], ["fail"]], [["text", "a "], ["text", "b "]]])
async def test_whoever_has_heard_the_end_is_not_refused_for_what_it_held(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, script: list[Any], stream: bool
) -> None:
    settle = RedisLimiter.settle

    async def settle_slowly(self: RedisLimiter, settlement: Settlement) -> Booking:
        await asyncio.sleep(0.02)
        return await settle(self, settlement)

    monkeypatch.setattr(RedisLimiter, "settle", settle_slowly)
    worst = PRICED.output_nano_usd_per_token * 100 + PRICED.input_nano_usd_per_token * 100
    client = await connect({"nano_usd": worst * 3 // 2, "period": "day"}, concurrent_requests=1)
    for _ in range(5):
        _, answer = await client.ask(script, stream=stream)
        assert answer.status in (200, 503)  # never 402 or 429
        await answer.read()
    assert await client.is_quiet()


async def test_an_answer_of_one_token_is_settled_at_once(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first renewal is due in the moment in which it ends."""
    cancelled_twice = []

    async def counting(task: asyncio.Task[Any]) -> None:
        await end_task(task)
        cancelled_twice.append(task.cancelling() > 1)

    monkeypatch.setattr("node.limits.settlement.end_task", counting)
    client = await connect()
    for _ in range(20):
        _, answer = await client.ask([["text", "a"]])
        assert answer.status == 200
    assert cancelled_twice == [False] * 20
