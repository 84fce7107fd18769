"""Requests with images by URL, at the edge: how often each is fetched, what it counts, how it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from node.wire.faults import UNREADABLE
from tests.contract.bodies import call, image, remote_image, result
from tests.contract.service import COUNT, MESSAGES, Service
from tests.e2e.egress.conftest import asking
from tests.e2e.egress.node_log import NodeLog
from tests.integration.egress.conftest import PARAM, At
from tests.integration.egress.lab import GOOD, Lab

TOOLS = [{"name": "get_weather", "input_schema": {"type": "object"}}]
INSIDE = "https://127.0.0.1/ok.png"


def with_result(first: list[Any], inner: list[Any]) -> list[dict[str, Any]]:
    """A turn, a call, and a result with blocks of its own."""
    return [{"role": "user", "content": first}, call(), result(content=inner)]


def test_a_url_is_fetched_once_however_often_a_request_names_it(
    service: Service, lab: Lab, log: NodeLog, at: At
) -> None:
    same, other = remote_image(at("/ok.png")), remote_image(at("/ok.png?2"))
    answer = service.ask(messages=with_result([same, other, same], [same]), tools=TOOLS)
    assert answer.message["stop_reason"] == "end_turn"
    assert sorted(head.split(b" ")[1] for head in lab.requests) == [b"/ok.png", b"/ok.png?2"]
    assert [fetch["verdict"] for fetch in log.fetches()] == ["delivered"] * 2


def test_the_next_request_fetches_again(service: Service, lab: Lab, at: At) -> None:
    for _ in range(3):
        assert service.post(asking(service, at("/ok.png"))).status == 200
    assert len(lab.requests) == 3


@pytest.mark.parametrize("place", ["turn", "result"])
def test_a_refusal_tells_the_path_of_the_block(service: Service, lab: Lab, place: str) -> None:
    first = [image(), remote_image(INSIDE)] if place == "turn" else [image()]
    inner = [image()] if place == "turn" else [{"type": "text", "text": "x"}, remote_image(INSIDE)]
    answer = service.ask(messages=with_result(first, inner), tools=TOOLS)
    block = "messages.0.content.1" if place == "turn" else "messages.2.content.0.content.1"
    assert answer.refusal() == (403, "egress_denied", "permission_error", f"{block}.source.url")
    assert answer.words.startswith(f"{block}.source.url: {UNREADABLE}: ")
    assert lab.is_quiet


def test_one_bad_url_keeps_all_of_a_request_here(service: Service, lab: Lab, at: At) -> None:
    answer = service.post(asking(service, at("/ok.png"), at("/ok.png?2"), INSIDE))
    assert answer.refusal()[3] == "messages.0.content.2.source.url"
    assert lab.is_quiet


def test_what_is_fetched_and_no_image_is_told_by_the_path_of_its_url(service: Service, at: At) -> None:
    answer = service.post(asking(service, at("/ok.png"), at("/svg")))
    param = "messages.0.content.1.source.url"
    assert answer.refusal() == (400, "unsupported_media_type", "invalid_request_error", param)
    assert UNREADABLE in answer.words


def test_counting_fetches_too_and_equals_the_usage(service: Service, lab: Lab, at: At) -> None:
    body = asking(service, at("/ok.png"), at("/colour?red"))
    usage = service.post(body).message["usage"]
    assert len(lab.requests) == 2
    assert service.post(body, COUNT).message == {"input_tokens": usage["input_tokens"]}
    assert len(lab.requests) == 4


def test_counting_is_refused_like_a_message(service: Service, lab: Lab) -> None:
    told = []
    for path in (MESSAGES, COUNT):
        answer = service.post(asking(service, INSIDE), path)
        told.append((answer.refusal(), answer.words))
    assert told[0] == told[1]
    assert told[0][0] == (403, "egress_denied", "permission_error", PARAM)
    assert lab.is_quiet


@pytest.mark.parametrize("is_same", [False, True])
def test_twenty_images_are_taken_and_twenty_one_are_not(service: Service, lab: Lab, at: At, *, is_same: bool) -> None:
    urls = [at("/ok.png" if is_same else f"/ok.png?{number}") for number in range(21)]
    answer = service.post(asking(service, *urls))
    assert answer.refusal() == (400, "invalid_request", "invalid_request_error", "messages.0.content.20")
    assert f"{UNREADABLE}: at most 20" in answer.words
    assert lab.is_quiet
    assert service.post(asking(service, *urls[:20])).status == 200
    assert len(lab.requests) == (1 if is_same else 20)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [("/to?%2F%2F127.0.0.1%2F", 403, "egress_denied"), ("/404", 400, "invalid_request"), ("/ok.png", 200, "")],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_stream_begins_after_the_fetch_or_never(
    service: Service, at: At, path: str, status: int, code: str, *, stream: bool
) -> None:
    answer = service.post(asking(service, at(path), stream=stream))
    assert answer.status == status
    assert answer.is_stream == (stream and status == 200)
    if status == 200:
        assert answer.events if stream else answer.message
    else:
        assert answer.headers["content-type"] == "application/json"
        assert answer.refusal()[:2] == (status, code)


@pytest.mark.parametrize("path", ["/ok.png", "/404"])
def test_the_fetch_is_a_phase_of_its_own(service: Service, log: NodeLog, at: At, path: str) -> None:
    answer = service.post(asking(service, at(path)))
    assert answer.phases[:5] == ["edge_auth", "edge_upstream", "admission", "parse", "images"]
    assert ("render" in answer.phases) == (answer.status == 200)
    spent_ms = {entry.partition(";dur=")[0]: float(entry.partition(";dur=")[2]) for entry in timing(answer.headers)}
    (fetch,) = log.fetches()
    assert spent_ms["images"] >= fetch["elapsed_ms"] - 0.1  # both are rounded


def timing(headers: Any) -> list[str]:
    return str(headers["server-timing"]).split(", ")


# A node lives on: what servers and zones did before must not count.


def test_a_name_that_turns_inside_after_a_good_answer_is_refused_the_next_time(service: Service, lab: Lab) -> None:
    body = asking(service, lab.url("https://a.lab.example/ok.png"))
    for address, status in ((GOOD, 200), ("127.0.0.1", 403), (GOOD, 200), ("10.0.0.1", 403), ("::1", 403)):
        lab.names.resolver.load({"a.lab.example": {"AAAA" if ":" in address else "A": [address]}})
        assert service.post(body).status == status
    assert lab.accepted == [GOOD] * 2


def test_answers_that_nobody_asked_for_reach_no_later_request(service: Service, at: At) -> None:
    for _ in range(3):
        paths = ("/second-later", "/two-answers", "/ok.png", "/to-cookie?%2Fok.png")
        assert [service.post(asking(service, at(path))).status for path in paths] == [200, 400, 200, 200]
