"""Every case of the corpus and those beyond it, over real sockets.

Nothing here knows the guard but through fixtures (`outcome_of`, `counts`, `dialled`, `case_here`); a suite for
another stage overrides them and imports the test.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from node.images.verdict import EgressCounts
from tests.integration.egress.conftest import PARAM, OutcomeOf, load_corpus
from tests.integration.egress.lab import NETWORK, Lab
from tests.integration.egress.more_cases import more_cases

CASES = load_corpus() + more_cases()


def is_as_expected(expected: str, outcome: tuple[int, str, str | None]) -> bool:
    """`invalid_request` in the corpus stands for any 400."""
    match expected:
        case "ok":
            return outcome == (200, "ok", None)
        case "egress_denied":
            return outcome == (403, "egress_denied", PARAM)
        case "not_json":
            return outcome == (400, "invalid_request", None)
        case _:
            return outcome[0] == 400 and outcome[2] == PARAM


def never_leaves(case: dict[str, Any]) -> bool:
    """Whether the URL alone is reason enough to refuse, so that not even DNS may hear of it."""
    return case["expect"] != "ok" and case.get("dns") is None and case["group"] != "dns"


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
async def test_a_url_ends_as_its_case_says(
    case_here: dict[str, Any], lab: Lab, outcome_of: OutcomeOf, counts: EgressCounts, dialled: list[str]
) -> None:
    case = case_here
    zone = case.get("dns") or {}
    lab.names.resolver.load(zone)
    outcome = await outcome_of(lab.url(case["url"]))
    assert is_as_expected(case["expect"], outcome), (outcome, dict(counts.by_verdict), case.get("why"))
    if "verdict" in case:
        assert counts.by_verdict == ({case["verdict"]: 1} if case["verdict"] else {})
    assert all(ip_address(address) in ip_network(NETWORK) for address in dialled)
    if never_leaves(case):
        assert not dialled
        assert not lab.names.resolver.asked
