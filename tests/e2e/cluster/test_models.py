"""What a cluster serves is one list, and a request that came to the wrong node is passed on once."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from tests.e2e.cluster.conftest import RARE, SHARED
from tests.e2e.money.audit import node_of, settled_books
from tests.e2e.money.client import LONG_S, MESSAGES, Tenant, words
from tests.e2e.money.service import Service
from tests.e2e.unheard import heard_later, says_unheard


async def get(service: Service, tenant: Tenant, path: str, edge: int = 0) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {tenant.token}"}
    url = service.edges[edge].url + path
    async with await heard_later(lambda: service.http.get(url, headers=headers), says_unheard) as answer:
        return answer.status, await answer.json()


async def post(service: Service, tenant: Tenant, raw: bytes, path: str = MESSAGES) -> aiohttp.ClientResponse:
    headers = {"Authorization": f"Bearer {tenant.token}", "Content-Type": "application/json"}
    url = service.edges[0].url + path
    return await heard_later(lambda: service.http.post(url, data=raw, headers=headers), says_unheard)


def hidden(model: str, **more: Any) -> bytes:
    """A body whose model no look at its bytes finds, and a JSON reader does."""
    body = {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}], **more}
    return json.dumps(body).replace('"model"', '"mod\\u0065l"', 1).encode()


async def test_every_node_lists_what_all_of_them_serve(service: Service, tenant: Tenant) -> None:
    openai = [await get(service, tenant, "/v1/infer/models", number % 2) for number in range(6)]
    for status, body in openai:
        assert (status, [entry["id"] for entry in body["data"]]) == (200, [RARE, SHARED])
        assert body == openai[0][1]
    anthropic = [(await get(service, tenant, "/v1/infer/v1/models"))[1] for _ in range(6)]
    for body in anthropic:
        assert [entry["id"] for entry in body["data"]] == [RARE, SHARED]
        assert (body["has_more"], body["first_id"], body["last_id"]) == (False, RARE, SHARED)


async def test_the_list_comes_in_pages(service: Service, tenant: Tenant) -> None:
    for query, ids, has_more in (
        ("limit=1", [RARE], True),
        (f"limit=1&after_id={RARE}", [SHARED], False),
        (f"after_id={SHARED}", [], False),
        (f"limit=1&before_id={SHARED}", [RARE], False),
    ):
        _, body = await get(service, tenant, f"/v1/infer/v1/models?{query}")
        assert ([entry["id"] for entry in body["data"]], body["has_more"]) == (ids, has_more), query


@pytest.mark.parametrize("route", ["models", "v1/models"])
async def test_one_model_is_found_at_any_node(service: Service, tenant: Tenant, route: str) -> None:
    for _ in range(4):
        for model in (RARE, SHARED):
            status, body = await get(service, tenant, f"/v1/infer/{route}/{model.replace('/', '%2F')}")
            assert (status, body["id"]) == (200, model)
        status, body = await get(service, tenant, f"/v1/infer/{route}/b3os%2Fnone")
        assert (status, body["b3os"]["code"]) == (404, "model_not_available")


async def test_a_request_goes_straight_to_the_node_of_its_model(service: Service, tenant: Tenant) -> None:
    for _ in range(3):
        call = await tenant.call(words(1), model=RARE).run()
        assert call.is_whole
        assert await node_of(call) == "n3"
        assert "forward" not in call.headers["Server-Timing"]


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_request_that_came_to_another_node_is_passed_on_and_billed_by_the_one_that_answered(
    service: Service, tenant: Tenant, is_stream: bool
) -> None:
    forwarded = asked = 0
    while asked < 4 or not forwarded:  # by chance the first ones may all have come to the right one
        asked += 1
        answer = await post(service, tenant, hidden(RARE, stream=is_stream, system=f"number {asked}"))
        told = await answer.text()
        assert answer.status == 200, told
        assert '"node":"n3"' in told
        assert "x-b3os-forwarded" not in answer.headers
        timing = answer.headers["Server-Timing"]
        forwarded += "forward;" in timing
        assert timing.count("parse;") == 1
        assert is_stream == ("event: message_stop" in told)
        assert asked < 100
    books = await settled_books(tenant)
    assert [entry["outcome"] for entry in books.entries] == ["finished"] * asked
    assert {record.node for record in books.records.values()} == {"n3"}


async def test_a_count_is_passed_on_too(service: Service, tenant: Tenant) -> None:
    raw = json.dumps({"messages": [{"role": "user", "content": "one two"}], "model": RARE})
    raw = raw.replace('"model"', '"mod\\u0065l"')
    for _ in range(3):
        answer = await post(service, tenant, raw.encode(), f"{MESSAGES}/count_tokens")
        assert await answer.json() == {"input_tokens": 2}


async def test_a_model_that_nobody_serves_is_a_404_of_a_node(service: Service, tenant: Tenant) -> None:
    for raw in (hidden("b3os/none"), hidden("b3os/none").replace(b"\\u0065", b"e")):
        answer = await post(service, tenant, raw)
        body = await answer.json()
        assert (answer.status, body["b3os"]) == (404, {"code": "model_not_available", "param": "model"})


async def test_a_client_that_leaves_ends_the_work_of_the_node_behind(service: Service, tenant: Tenant) -> None:
    script = json.dumps({"scripted": [*words(2), ["pause", LONG_S]]})
    messages = [{"role": "user", "content": script}]
    answers = [
        await post(service, tenant, hidden(RARE, stream=True, messages=messages, system=f"number {number}"))
        for number in range(3)
    ]
    for answer in answers:
        assert answer.status == 200
        answer.close()
    books = await settled_books(tenant)
    assert [entry["outcome"] for entry in books.entries] == ["client_gone"] * 3
