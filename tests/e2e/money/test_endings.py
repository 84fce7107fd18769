"""However an answer ends, it is billed once, to the token."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from node.limits.names import leases_key
from tests.e2e.money.audit import settled_books, told_output
from tests.e2e.money.client import LONG_S, Step, Tenant, endless, words
from tests.e2e.money.service import until


@dataclass(frozen=True)
class Case:
    """What is played, and what becomes of it.

    Attributes:
        has_usage: whether the client is told what is billed; else the answer breaks off.
    """

    script: list[Step]
    output_tokens: int
    outcome: str = "finished"
    status: int = 200
    stop_reason: str | None = "end_turn"
    code: str | None = None
    has_usage: bool = True
    is_charged: bool = True
    fields: dict[str, Any] = field(default_factory=dict)


FAILED: dict[str, Any] = {"outcome": "failed", "stop_reason": None, "has_usage": False}
AWAY = "infer_backend_unavailable"
CASES = {
    "streamed": Case(words(5), 5),
    "whole": Case(words(5), 5, fields={"stream": False}),
    "stop sequence": Case(endless(9), 4, stop_reason="stop_sequence", fields={"stop_sequences": ["w3"]}),
    "max tokens": Case(words(9), 6, stop_reason="max_tokens", fields={"max_tokens": 6}),
    "the engine fails": Case([*words(4), ["fail"]], 4, code=AWAY, **FAILED),
    "the engine fails, whole": Case(
        [*words(4), ["fail"]], 4, status=503, code=AWAY, fields={"stream": False}, **FAILED
    ),
    "a fault of ours": Case([*words(4), ["crash"]], 4, code="internal", **FAILED),
    "the engine fails first": Case([["fail"]], 0, status=503, code=AWAY, is_charged=False, **FAILED),
    "a fault of ours first": Case([["crash"]], 0, status=500, code="internal", is_charged=False, **FAILED),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_the_bill_is_what_was_generated(tenant: Tenant, case: Case) -> None:
    assert (await tenant.ask()).is_whole  # the node's part of the way is open
    call = await tenant.call(case.script, **case.fields).run()
    assert (call.status, call.stop_reason, call.code) == (case.status, case.stop_reason, case.code)
    assert call.is_whole == case.has_usage
    books = await settled_books(tenant)
    record, bill = books.records[call.request_id], books.bills()[call.request_id]
    assert (record.outcome, record.status, record.stop_reason) == (case.outcome, case.status, case.stop_reason)
    assert record.error_code == case.code
    assert bill["output_tokens"] == case.output_tokens
    assert (bill["input_tokens"] > 0) == case.is_charged
    if case.has_usage:
        assert call.usage == {name: bill[name] for name in ("input_tokens", "output_tokens")}
        assert call.words == case.output_tokens or case.stop_reason == "stop_sequence"


async def test_who_is_refused_for_his_request_pays_nothing(tenant: Tenant) -> None:
    refused = [await tenant.ask(**fields) for fields in ({"max_tokens": 0}, {"model": "b3os/other"}, {"x": 1})]
    assert [call.status for call in refused] == [400, 404, 400]
    books = await settled_books(tenant)
    assert (books.entries, {record.outcome for record in books.records.values()}) == ([], {"refused"})


async def test_who_leaves_before_the_first_token_pays_nothing(tenant: Tenant) -> None:
    call = tenant.call([["pause", LONG_S], *words(1)])
    begun = asyncio.create_task(call.begin())
    await until(lambda: tenant.service.redis.zcard(leases_key(tenant.org)), "it is let in")
    await until(tenant.service.running, "it runs")
    begun.cancel()
    books = await settled_books(tenant)
    assert [(record.outcome, record.status) for record in books.records.values()] == [("client_gone", 499)]
    assert (books.bills(), books.usage["requests"]) == ({}, 1)


async def test_who_leaves_a_stream_pays_to_the_last_token_and_sees_it_in_his_log(tenant: Tenant) -> None:
    call = await tenant.opened(endless(7))
    await call.read(7)
    running = await tenant.get(f"/v1/requests/{call.request_id}")
    assert (running["outcome"], running["status"], running["cost_nano_usd"]) == ("running", None, 0)
    call.leave()
    books = await settled_books(tenant)
    assert books.output_of(call) == 7
    record = await tenant.get(f"/v1/requests/{call.request_id}")
    input_tokens = books.bills()[call.request_id]["input_tokens"]
    assert input_tokens > 0
    wanted = {"outcome": "client_gone", "status": 200, "error_code": None, "stop_reason": None}
    assert {name: record[name] for name in wanted} == wanted
    assert record["usage"] == {"input_tokens": input_tokens, "output_tokens": 7, "cached_tokens": 0, "image_bytes": 0}
    assert record["cost_nano_usd"] == 3 * input_tokens + 10 * 7
    assert 0 < record["ttft_ms"] <= record["total_ms"]


async def test_who_leaves_before_a_whole_answer_pays_for_what_was_generated(tenant: Tenant) -> None:
    call = tenant.call(endless(7), stream=False)
    begun = asyncio.create_task(call.begin())

    async def has_begun() -> bool:
        records = (await tenant.get("/v1/requests"))["data"]
        call.request_id = records[0]["id"] if records else ""
        return await told_output(call) > 0

    await until(has_begun, "the node has told of its first token")
    begun.cancel()
    books = await settled_books(tenant)
    assert 1 <= books.output_of(call) <= 7
    assert books.outcomes(call) == ["client_gone"]


async def test_a_streamed_answer_is_shown_whole(tenant: Tenant) -> None:
    call = await tenant.ask(words(5))
    books = await settled_books(tenant)
    for edge in tenant.service.edges:
        record = await tenant.get(f"/v1/requests/{call.request_id}", edge)
        phases = record.pop("phases_ms")
        assert {"parse", "admission", "render", "ttft"} <= set(phases)
        assert abs(record.pop("ttft_ms") - phases["ttft"]) < 0.01
        assert record.pop("total_ms") >= phases["ttft"]
        assert record.pop("created_at").endswith("Z")
        assert record == {
            "id": call.request_id,
            "key_id": tenant.key_id,
            "project": "main",
            "model": tenant.service.model,
            "node": books.records[call.request_id].node,
            "outcome": "finished",
            "status": 200,
            "error_code": None,
            "stop_reason": "end_turn",
            "usage": {**call.usage, "cached_tokens": 0, "image_bytes": 0},
            "cost_nano_usd": 3 * call.usage["input_tokens"] + 10 * 5,
            "price": "in3-out10",
        }
