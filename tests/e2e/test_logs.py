"""The log lines of requests: one on each side, joined by the request id, documented, and without secrets."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.stack import DevStack
from tests.e2e.unheard import heard_later, says_unheard

ROOT = Path(__file__).parents[2]
PROMPT, ANSWER, COOKIE = "a prompt that nobody may read", "an answer for one", "s3cr3tc00k13"


def lines_of(stack: DevStack, side: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (stack.home / "logs" / f"{side}.log").read_text().splitlines()]


def documented_fields() -> set[str]:
    manual = (ROOT / "docs" / "operations.md").read_text().partition("\n## Logs\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \| ", manual, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


async def ask(stack: DevStack, steps: list[Any], **fields: Any) -> str:
    """The request's id."""
    text = json.dumps({"scripted": steps, "note": PROMPT})
    body = {"model": stack.model, "max_tokens": 50, "messages": [{"role": "user", "content": text}], **fields}
    headers = {"x-api-key": stack.api_key, "Cookie": f"__Host-b3os_session={COOKIE}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        answer = await heard_later(
            lambda: session.post(f"{stack.base_url}/v1/messages?q={COOKIE}", json=body), says_unheard
        )
        await answer.read()
        return answer.headers["x-request-id"]


async def joined(stack: DevStack, request_id: str) -> dict[str, dict[str, Any]]:
    """The `request` line of each side, once both are there: a node's comes after the bill, behind the answer."""
    async with asyncio.timeout(60):
        while True:
            found = {
                side: [line for line in lines_of(stack, side) if is_of(line, request_id)] for side in ("edge", "node")
            }
            if all(found.values()):
                assert all(len(lines) == 1 for lines in found.values())
                return {side: lines[0] for side, lines in found.items()}
            await asyncio.sleep(0.01)


def is_of(line: dict[str, Any], request_id: str) -> bool:
    return line["message"] == "request" and line.get("request_id") == request_id


async def test_each_request_is_one_line_on_each_side_under_one_id_and_tells_no_secret(dev_scripted: DevStack) -> None:
    steps = [["text", ANSWER]]
    whole = await joined(dev_scripted, await ask(dev_scripted, steps))
    stream = await joined(dev_scripted, await ask(dev_scripted, steps, stream=True))
    refused = await joined(dev_scripted, await ask(dev_scripted, steps, temperature=9))
    broken = await joined(dev_scripted, await ask(dev_scripted, [["text", ANSWER], ["fail"]], stream=True))
    assert [pair["node"]["status"] for pair in (whole, stream, refused, broken)] == [200, 200, 400, 200]
    assert refused["node"]["code"] == "invalid_request"
    assert broken["node"]["code"] == "infer_backend_unavailable"
    assert (whole["node"]["output_tokens"], whole["node"]["stop_reason"]) == (1, "end_turn")
    for pair in (whole, stream, refused, broken):
        assert pair["edge"]["org"]
        for line in pair.values():
            assert set(line) <= documented_fields()
            assert {"method", "path", "total_ms", "phases_ms"} <= set(line)
    for side in ("edge", "node"):
        text = (dev_scripted.home / "logs" / f"{side}.log").read_text()
        for secret in (PROMPT, ANSWER, COOKIE, dev_scripted.api_key):
            assert secret not in text
