"""`/metrics` of a running edge and a running node: what is told is documented, and what is documented is told."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.stack import DevStack
from tests.e2e.unheard import AGAIN_AFTER_S, TIMES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(operator_url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{operator_url}/metrics") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        return await answer.text()


async def samples_of(operator_url: str) -> Samples:
    families = text_string_to_metric_families(await scrape(operator_url))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


async def samples_at_rest(operator_url: str) -> Samples:
    """Once no message is being answered or billed any more; a client has its answer before that."""
    async with asyncio.timeout(60):
        while not is_at_rest(samples := await samples_of(operator_url)):
            await asyncio.sleep(0.01)
    return samples


def is_at_rest(samples: Samples) -> bool:
    """A Redis that was slow for a moment counts as away until it is asked anew."""
    away = samples.get(("b3os_node_store_away", ()), 0)
    return not value(samples, "b3os_http_running", route="messages") and not away


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


async def ask(stack: DevStack, key: str, steps: list[Any], **fields: Any) -> int:
    text = json.dumps({"scripted": steps})
    body = {"model": stack.model, "max_tokens": 50, "messages": [{"role": "user", "content": text}], **fields}
    async with (
        aiohttp.ClientSession(headers={"x-api-key": key}) as session,
        session.post(f"{stack.base_url}/v1/messages", json=body) as answer,
    ):
        await answer.read()
        return answer.status


def documented(*sections: str) -> dict[str, str]:
    """Names and kinds of the tables under these headings."""
    found: dict[str, str] = {}
    for section in sections:
        part = DOCUMENT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        found |= dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", part, re.MULTILINE))
    return found


def exposed(text: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))


@pytest.mark.parametrize("side", ["Edge", "Node"])
async def test_every_name_is_documented_and_every_documented_name_is_there(dev_scripted: DevStack, side: str) -> None:
    url = dev_scripted.edge_operator_url if side == "Edge" else dev_scripted.node_operator_url
    assert exposed(await scrape(url)) == documented("Both", side)


@pytest.mark.parametrize("side", ["Edge", "Node"])
async def test_labels_are_those_of_the_document_and_none_is_a_caller_s(dev_scripted: DevStack, side: str) -> None:
    await ask(dev_scripted, "b3os_sk_somebody", [["text", "Hi"]], model="b3os/stranger")
    url = dev_scripted.edge_operator_url if side == "Edge" else dev_scripted.node_operator_url
    rows = dict(re.findall(r"^\| `(\w+)` \| \w+ \| (.*?) \|", DOCUMENT, re.MULTILINE))
    text = await scrape(url)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = next(known for known in (sample.name, family.name, f"{family.name}_total") if known in rows)
            assert set(sample.labels) - {"le"} == set(re.findall(r"`(\w+)`", rows[name])), sample
    assert "stranger" not in text
    assert "somebody" not in text


async def samples_before_an_answer(stack: DevStack) -> tuple[Samples, Samples]:
    """Of the edge and the node; then there was one answer. What Redis had no second for is counted as well, so all
    is read again after that."""
    for _ in range(TIMES):
        before = await samples_at_rest(stack.edge_operator_url), await samples_at_rest(stack.node_operator_url)
        status = await ask(stack, stack.api_key, [["text", "Hel"], ["text", "lo"]], stream=True)
        if status == 200:
            return before
        assert status == 503
        await asyncio.sleep(AGAIN_AFTER_S)
    raise AssertionError("there was no answer")


async def test_an_answer_is_counted_on_both_sides(dev_scripted: DevStack) -> None:
    stack = dev_scripted
    edge, node = await samples_before_an_answer(stack)
    assert await ask(stack, "b3os_sk_" + "0" * 50, []) == 401
    after_edge = await samples_at_rest(stack.edge_operator_url)
    after_node = await samples_at_rest(stack.node_operator_url)

    def rise(name: str, **labels: str) -> float:
        before, after = (edge, after_edge) if (name, tuple(sorted(labels.items()))) in edge else (node, after_node)
        return value(after, name, **labels) - value(before, name, **labels)

    assert rise("b3os_edge_answers_total", ended_by="answer") == 2
    assert rise("b3os_edge_auth_total", outcome="accepted") == 1
    assert rise("b3os_edge_auth_total", outcome="unauthorized") == 1
    assert rise("b3os_http_refusals_total", code="unauthorized") == 1
    for samples, before in ((after_edge, edge), (after_node, node)):
        labels = {"route": "messages", "status": "2xx"}
        assert (
            value(samples, "b3os_http_requests_total", **labels) - value(before, "b3os_http_requests_total", **labels)
            == 1
        )
        assert value(samples, "b3os_event_loop_lag_seconds_count") > 0
    assert rise("b3os_node_admissions_total", outcome="admitted") == 1
    assert rise("b3os_node_settlements_total", outcome="finished") == 1
    assert rise("b3os_node_bookings_total", booking="settled") == 1
    assert rise("b3os_node_tokens_total", kind="output") == 2
    assert rise("b3os_node_ttft_seconds_count") == 1
    assert value(after_node, "b3os_engine_state", state="ready") == 1
    assert value(after_node, "b3os_node_store_away") == 0
    assert value(after_edge, "b3os_edge_invalidations_connected") == 1
    assert value(after_edge, "b3os_edge_bodies_held_bytes") == 0
