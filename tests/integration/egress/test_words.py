"""What is written down of a fetch, and what the caller hears."""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress

import pytest

from node.images.answer import AnswerReader
from node.images.fetch import EgressGuard
from node.images.url import Target
from node.images.verdict import EgressRefused, Verdict
from tests.integration.egress.conftest import PARAM, At, fetch_one
from tests.integration.egress.lab import GOOD


async def test_a_decision_is_one_line_and_one_count(
    guard: EgressGuard, at: At, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "b3os.egress")
    urls = [at("/ok.png?secret"), at("/hops/1"), at("/404"), "https://127.0.0.1/", "http://x", at("/to?%2F%2F0")]
    for url in urls:
        with suppress(EgressRefused):
            await fetch_one(guard, url)
    lines = [record.__dict__["facts"] for record in caplog.records if record.name == "b3os.egress"]
    verdicts = [line["verdict"] for line in lines]
    assert verdicts == ["delivered", "delivered", "bad_status", "address_literal", "not_https", "address_literal"]
    assert guard.counts.by_verdict.total() == len(urls)
    assert lines[0]["hosts"] == ["ok.lab.example"]
    assert lines[0]["addresses"] == {GOOD: "allowed_address"}
    assert lines[1]["hosts"] == ["ok.lab.example"] * 2
    assert "secret" not in json.dumps(lines)


ECHOES = [
    b"/x.png?sig=SECRET\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n/x.png?sig=SECRET\r\n\r\n",
    b"HTTP/1.1 200 sig=SECRET\r\n\0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: SECRET\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nSECRET\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nSECRET\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nSECRET\r\n\r\n",
    b"HTTP/1.1 404 SECRET\r\n\r\n",
    b"HTTP/SECRET 200 OK\r\n\r\n",
    b"SECRET",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nSECRET",
]


@pytest.mark.parametrize("answer", ECHOES)
def test_no_byte_of_an_answer_gets_into_the_log(answer: bytes) -> None:
    """Servers may send back what they were asked, the caller's signature with it."""
    reader = AnswerReader(Target("a.b", 443, "/x.png?sig=SECRET"), 1000)

    def read() -> None:
        reader.feed(answer)
        reader.feed(b"")

    with pytest.raises(EgressRefused) as raised:
        read()
    assert "SECRET" not in raised.value.detail


@pytest.mark.parametrize("hop", [0, 1])
@pytest.mark.parametrize("verdict", Verdict)
def test_no_message_tells_an_address_or_what_was_found(verdict: Verdict, hop: int) -> None:
    refused = EgressRefused(verdict, "10.1.2.3 inner.corp", hop=hop, url="https://secret.example/")
    error = refused.api_error(PARAM)
    assert error.message.startswith(f"{PARAM}: ")
    assert error.param == PARAM
    told = error.message.removeprefix(PARAM)
    assert not re.search(r"10\.1|corp|secret|example|[0-9]+\.[0-9]+|::", told)
    assert (error.condition.status, error.condition.code) in (
        (403, "egress_denied"),
        (400, "invalid_request"),
        (400, "unsupported_media_type"),
    )


def test_whatever_a_name_leads_to_is_told_in_the_same_words() -> None:
    """Else the messages would tell which internal names exist."""
    first, last = list(Verdict).index(Verdict.DENIED_ADDRESS), list(Verdict).index(Verdict.TOO_MANY_ADDRESSES)
    verdicts = list(Verdict)[first : last + 1]
    assert len(verdicts) == 17
    assert len({EgressRefused(verdict).api_error(PARAM).message for verdict in verdicts}) == 1
