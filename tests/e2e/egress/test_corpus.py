"""The corpus of the guard through the whole service, whose node, DNS client and places live on from case to case."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.service import Service
from tests.e2e.egress.conftest import asking
from tests.integration.egress.conftest import PARAM
from tests.integration.egress.lab import Lab
from tests.integration.egress.test_corpus import CASES, test_a_url_ends_as_its_case_says

__all__ = ["test_a_url_ends_as_its_case_says"]
WIDE = [case for case in CASES if not case["url"].isascii() and case["url"].isprintable()]


@pytest.mark.parametrize("case", WIDE, ids=[case["name"] for case in WIDE])
def test_letters_beyond_ascii_are_refused_in_utf8_as_in_escapes(
    service: Service, lab: Lab, case: dict[str, Any]
) -> None:
    body = asking(service, case["url"])
    escaped, plain = json.dumps(body).encode(), json.dumps(body, ensure_ascii=False).encode()
    assert escaped != plain
    answers = [service.send(raw) for raw in (escaped, plain)]
    assert [answer.refusal()[0::3] for answer in answers] == [(400, PARAM)] * 2
    assert answers[0].words == answers[1].words
    assert lab.is_quiet


@pytest.mark.parametrize("escape", [r"\ud800", r"\udcff", r"\ud83d\ud83d", r"\ude00\ud83d"])
def test_half_a_surrogate_pair_makes_a_body_that_is_no_json(service: Service, lab: Lab, escape: str) -> None:
    raw = json.dumps(asking(service, "https://ok.lab.example/@.png")).replace("@", escape).encode()
    assert escape.encode() in raw
    assert service.send(raw).refusal() == (400, "invalid_request", "invalid_request_error", None)
    assert lab.is_quiet
