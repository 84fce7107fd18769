"""Anthropic's TypeScript SDK against the whole service: the golden conversations of the Python SDK, once more.

`typescript/driver.mjs` does all of it in one run; what it brought back is judged here.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.clients.golden import (
    CONVERSATIONS,
    FAILURE,
    GOLDEN,
    MODEL,
    REFUSALS,
    THINKING,
    Conversation,
    Refusal,
    comparable,
    script,
)
from tests.clients.golden_bytes import golden_path
from tests.clients.node_modules import FOLDER, install_packages, node
from tests.clients.test_python_helpers import ASKED, FELL_BACK, LANDMARK, LANDMARK_STEPS
from tests.e2e.stack import DevStack
from tests.e2e.unheard import SENTENCES
from tests.stream_checker import check_stream

ENDS_WITHIN_S = 300.0
CLASSES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    413: "ContentTooLargeError",
    415: "APIError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}
LAST_TEXTS = ["", "One more.", "Paris is the warmest."]

each_conversation = pytest.mark.parametrize("golden", CONVERSATIONS, ids=lambda golden: golden.name)


@pytest.fixture(scope="module")
def results(dev_scripted: DevStack, key_without_scope: str) -> dict[str, Any]:
    """All that the driver brought back."""
    no_scope = Refusal(
        "no scope",
        403,
        "permission_error",
        "forbidden",
        headers={"Authorization": f"Bearer {key_without_scope}"},
    )
    fields = {"model": MODEL, "max_tokens": 64, **THINKING}
    job = {
        "base_url": dev_scripted.base_url,
        "api_key": dev_scripted.api_key,
        "unheard": SENTENCES,
        "conversations": [
            {"name": golden.name, "body": golden.body(), "may_fail": golden is FAILURE}
            for golden in [*CONVERSATIONS, FAILURE]
        ],
        "refusals": [
            {
                "name": refusal.name,
                "body": refusal.body(),
                "headers": refusal.headers,
                "is_final": refusal.is_final,
            }
            for refusal in [*REFUSALS, no_scope]
        ],
        "streams": [
            {"name": golden.name, "path": str(golden_path(golden)), "body": golden.body()} for golden in GOLDEN
        ],
        "loop": {**fields, "messages": ASKED},
        "landmark": {**fields, "messages": [{"role": "user", "content": script(LANDMARK_STEPS)}]},
    }
    install_packages()
    done = subprocess.run(
        [node(), str(FOLDER / "driver.mjs")],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    brought: dict[str, Any] = json.loads(done.stdout)
    return brought


@each_conversation
def test_an_answer_is_the_same_whole_and_streamed(results: dict[str, Any], golden: Conversation) -> None:
    result = results["conversations"][golden.name]
    assert comparable(result["whole"]["value"]) == golden.answer(is_stream=False)
    assert comparable(result["streamed"]["value"]) == golden.answer(is_stream=True)
    assert result["statuses"] == [200, 200, 200]


@each_conversation
def test_the_raw_events_come_as_they_were_sent(results: dict[str, Any], golden: Conversation) -> None:
    check_stream(results["conversations"][golden.name]["events"])


def test_a_stream_that_fails_says_so_after_what_it_had(results: dict[str, Any]) -> None:
    result = results["conversations"][FAILURE.name]
    assert [event["type"] for event in result["events"]] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
    ]
    for error in (result["raw"]["error"], result["streamed"]["error"]):
        assert (error["class"], error["status"], error["type"]) == ("APIError", None, "overloaded_error")
        assert error["request_id"] == error["body"]["request_id"]
    assert result["statuses"] == [503, 200, 200]


@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_a_refusal_is_an_error_of_its_class(results: dict[str, Any], refusal: Refusal, form: str) -> None:
    check_refusal(results["refusals"][refusal.name][form], refusal.status, refusal.kind, refusal.code)


def test_a_key_without_the_scope_is_refused_once(results: dict[str, Any]) -> None:
    check_refusal(results["refusals"]["no scope"]["whole"], 403, "permission_error", "forbidden")


def check_refusal(result: dict[str, Any], status: int, kind: str, code: str) -> None:
    error = result["error"]
    assert (error["class"], error["status"], error["type"]) == (CLASSES[status], status, kind)
    assert error["request_id"].startswith("req_")
    assert error["body"].get("b3os", error["body"]["error"])["code"] == code
    assert result["statuses"] == [status]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_a_golden_stream_is_read(results: dict[str, Any], golden: Conversation) -> None:
    result = results["replays"][golden.name]
    if golden is FAILURE:
        assert result["error"]["type"] == "overloaded_error"
    else:
        assert comparable(result["value"]) == golden.answer(is_stream=True)


@pytest.mark.parametrize("form", ["whole", "streamed"])
def test_a_tool_runner_does_without_a_thread(results: dict[str, Any], form: str) -> None:
    result = results["tool_runner"][form]
    assert "error" not in result
    assert result["texts"] == LAST_TEXTS
    assert [request["status"] for request in result["requests"]] == FELL_BACK
    assert ["thread" in request["body"] for request in result["requests"]] == [True, False, False, False]
    told = json.dumps(result["requests"][-1]["body"]["messages"])
    assert told.count("tool_result") == 3
    assert "20 degrees in Rome" in told
    assert "no such city" in told


@pytest.mark.parametrize("form", ["whole", "streamed"])
def test_an_answer_is_parsed_by_its_schema(results: dict[str, Any], form: str) -> None:
    assert results["parsed"][form] == {"value": LANDMARK.model_dump(exclude_none=True)}
    assert results["parsed"]["statuses"] == [200, 200]


def test_tokens_are_counted_and_models_listed(results: dict[str, Any]) -> None:
    around = results["around"]
    first = results["conversations"][CONVERSATIONS[0].name]["whole"]["value"]
    assert around["count"]["value"]["input_tokens"] == first["usage"]["input_tokens"]
    assert around["listed"] == [around["retrieved"]["value"]]
    assert around["listed"][0]["id"] == MODEL
    assert around["missing"]["error"]["class"] == "NotFoundError"
    assert around["statuses"] == [200, 200, 200, 404]
