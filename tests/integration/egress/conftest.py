"""The lab, a guard that differs from production's by settings alone, and a record of every TCP connection."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.images.fetch import ByteMeter, EgressGuard
from node.images.verdict import EgressCounts, EgressRefused
from node.settings import EgressSection, NodeSettings
from shared.settings import load_settings
from tests.integration.egress.behaviours import STEP_S, TOTAL_S
from tests.integration.egress.lab import GOOD, MUTE, NETWORK, SLOW_TLS, Lab
from tests.unmetered import Unmetered

Outcome = tuple[int, str, str | None]
OutcomeOf = Callable[[str], Awaitable[Outcome]]
At = Callable[[str], str]
GOOD_ZONE = {"ok.lab.example": {"A": [GOOD]}}
UNMETERED = Unmetered()
PATIENT = {"step_s": "60", "total_s": "120"}
"""Settings for what is not about time, on a machine that stands still for a while."""
PARAM = "messages.0.content.0.source.url"


@pytest.fixture
def lab(egress_lab: Lab) -> Iterator[Lab]:
    """The lab, with the claim of every test: no canary heard of it."""
    egress_lab.forget()
    yield egress_lab
    assert egress_lab.touched == []
    assert egress_lab.names.faults == []


@pytest.fixture
def case_here(case: dict[str, Any]) -> dict[str, Any]:
    """A case as the stage under test must end it: one with something before the guard overrides this."""
    return case


def lab_environment(lab: Lab, **more: str) -> dict[str, str]:
    """The variables that make a node of production one of the lab."""
    return {
        "B3OS_ENV": "test",
        "B3OS_EGRESS_NAMESERVERS": json.dumps([lab.names.address]),
        "B3OS_EGRESS_ALLOW_NETWORKS": json.dumps([NETWORK]),
        "B3OS_EGRESS_CA_FILE": str(lab.ca_file),
        "B3OS_EGRESS_PORTS": json.dumps([lab.port] if lab.port == 443 else [443, lab.port]),
        "B3OS_EGRESS_STEP_S": str(STEP_S),
        "B3OS_EGRESS_TOTAL_S": str(TOTAL_S),
    } | {f"B3OS_EGRESS_{name.upper()}": value for name, value in more.items()}


def lab_settings(lab: Lab, **more: str) -> EgressSection:
    return load_settings(NodeSettings, lab_environment(lab, **more), {}).egress


@pytest.fixture
async def guard(lab: Lab, request: pytest.FixtureRequest) -> EgressGuard:
    """A guard of its own for each test, with counts of its own; patient where a case is about something else."""
    case = getattr(request.node, "callspec", None) and request.node.callspec.params.get("case")
    return EgressGuard(lab_settings(lab, **({} if case is None or is_about_time(case) else PATIENT)))


def is_about_time(case: dict[str, Any]) -> bool:
    """Whether something in it never comes, or not in time."""
    names = (MUTE, SLOW_TLS, "drop", "/silent", "/stall", "/slow-", "-slow")
    return any(name in json.dumps([case["url"], case.get("dns")]) for name in names)


@pytest.fixture
def outcome_of(guard: EgressGuard) -> OutcomeOf:
    """Where the corpus meets what is tested. Another stage overrides this one: status, code and param of a URL."""

    async def outcome(url: str) -> Outcome:
        try:
            await fetch_one(guard, url)
        except EgressRefused as refused:
            error = refused.api_error(PARAM)
            return error.condition.status, error.condition.code, error.param
        return 200, "ok", None

    return outcome


@pytest.fixture
def counts(guard: EgressGuard) -> EgressCounts:
    """What `outcome_of` was decided by."""
    return guard.counts


@pytest.fixture
def at(lab: Lab) -> At:
    """URLs of the good host, which is the only one that there is."""
    lab.names.resolver.load(GOOD_ZONE)
    return lambda path: lab.url(f"https://ok.lab.example{path}")


async def fetch_one(guard: EgressGuard, url: str, meter: ByteMeter = UNMETERED) -> bytes:
    """The image of one URL."""

    async def give(url: str, data: bytes) -> bytes:
        return data

    return (await guard.fetch_all([url], give, meter))[url]


async def refusal(work: Awaitable[Any]) -> EgressRefused:
    """What a fetch is refused with."""
    with pytest.raises(EgressRefused) as raised:
        await work
    return raised.value


class _Connections:
    """TCP connections that this process began, by an audit hook; hooks can't be removed, so there is one."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect" and arguments[0].type & socket.SOCK_STREAM:
            self.addresses.append(str(arguments[1][0]))


_connections = _Connections()


@pytest.fixture
def dialled() -> list[str]:
    """The addresses that were connected to since the test began, as `connect` got them."""
    _connections.addresses.clear()
    return _connections.addresses


def load_corpus() -> list[dict[str, Any]]:
    path = Path(__file__).parents[2] / "cases" / "egress-corpus.json"
    cases: list[dict[str, Any]] = json.loads(path.read_text())
    return cases
