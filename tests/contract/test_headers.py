"""The table "Headers" of docs/wire.md. `service.py` checks what every answer has on every answer of these tests."""

from __future__ import annotations

import pytest

from shared.ids import REQUEST_ID
from tests.contract.service import COUNT, MESSAGES, PREFIX, Answer, Service

NODE_PHASES = ["admission", "parse", "images", "render", "guide"]


def answers_of_every_kind(service: Service) -> dict[str, Answer]:
    return {
        "whole": service.ask(),
        "stream": service.ask(stream=True),
        "count": service.post(service.body(), COUNT),
        "models": service.send(None, f"{PREFIX}/models", "GET"),
        "node's refusal": service.ask(nonsense=1),
        "edge's refusal": service.send(b"{}", key=""),
        "no route": service.send(None, f"{MESSAGES}/batches", "GET"),
        "problem": service.send(None, "/", "GET"),
        "hello": service.send(None, PREFIX, "HEAD", key=""),
    }


def test_headers_request_id_is_on_every_answer_under_both_names(service: Service) -> None:
    answers = answers_of_every_kind(service)
    ids = [answer.headers["request-id"] for answer in answers.values()]
    assert ids == [answer.headers["x-request-id"] for answer in answers.values()]
    assert len(set(ids)) == len(answers)
    assert all(REQUEST_ID.fullmatch(name) for name in ids)


def test_headers_request_id_is_never_the_caller_s(service: Service) -> None:
    mine = "req_01m5t4yg394wegr3j4y01qb363"
    answer = service.send(b"{}", x_request_id=mine, request_id=mine)
    assert answer.headers["request-id"] != mine


def test_headers_server_timing_tells_the_edge_s_phases_then_the_node_s(service: Service) -> None:
    phases = {name: answer.phases for name, answer in answers_of_every_kind(service).items()}
    assert phases["whole"] == ["edge_auth", "edge_upstream", *NODE_PHASES, "model", "total"]
    assert phases["stream"] == ["edge_auth", "edge_upstream", *NODE_PHASES, "ttft"]
    assert phases["count"] == ["edge_auth", "edge_upstream", "admission", "parse", "images", "render", "total"]
    assert phases["node's refusal"] == ["edge_auth", "edge_upstream", "admission", "parse", "total"]
    assert phases["edge's refusal"] == ["edge_auth", "total"]


def test_headers_server_timing_total_is_on_bodies_of_known_size_alone(service: Service) -> None:
    for name, answer in answers_of_every_kind(service).items():
        assert ("total" in answer.phases) == (name != "stream"), name
        assert ("content-length" in answer.headers) == (name not in ("stream", "hello")), name


def test_headers_server_timing_total_covers_the_phases(service: Service) -> None:
    answer = service.ask([["pause", 0.05], ["text", "a"]])
    entries = dict(entry.split(";dur=") for entry in answer.headers["server-timing"].split(", "))
    assert float(entries["total"]) >= float(entries["edge_upstream"]) >= 50


def test_headers_x_b3os_ignored_is_on_answers_streams_and_refusals(service: Service) -> None:
    for fields in ({}, {"stream": True}, {"model": "b3os/other"}):
        answer = service.ask(metadata={"user_id": "u"}, service_tier="auto", **fields)
        assert answer.headers["x-b3os-ignored"] == "metadata, service_tier"
    assert "x-b3os-ignored" not in service.ask().headers


@pytest.mark.parametrize(("status", "retry"), [(200, None), (400, "false"), (500, None), (503, None)])
def test_headers_x_should_retry_is_false_where_nothing_can_succeed(
    service: Service, status: int, retry: str | None
) -> None:
    script = {200: [], 500: [["crash"]], 503: [["fail"]]}.get(status, [])
    answer = service.ask(script, max_tokens=0 if status == 400 else 5)
    assert (answer.status, answer.headers.get("x-should-retry")) == (status, retry)


def test_headers_retry_after_is_on_a_503(service: Service) -> None:
    assert int(service.ask([["fail"]]).headers["retry-after"]) >= 1
    assert "retry-after" not in service.ask().headers
