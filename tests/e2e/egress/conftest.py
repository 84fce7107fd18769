"""The whole service with the lab for its internet: `b3os dev`, made so by settings alone.

The corpus's fixtures are those of the guard's own suite, but that here URLs go in at the edge, and the node's log
tells what was decided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from node.images.url import MAX_URL_CHARACTERS
from node.images.verdict import EgressCounts, EgressRefused, Verdict
from node.wire.faults import UNREADABLE
from tests.contract.bodies import remote_image
from tests.contract.service import Answer, Service
from tests.e2e.conftest import PATIENCE
from tests.e2e.egress.node_log import NodeLog
from tests.e2e.stack import DevCommand, DevStack, running_dev
from tests.integration.egress.conftest import PARAM, Outcome, OutcomeOf, at, lab, lab_environment
from tests.integration.egress.lab import Lab

__all__ = ["at", "lab"]
SOME_PATIENCE = {"step_s": "3.5", "total_s": "3.8"}
"""For a machine that stands still. `/1xx-slow` has sent too many of them a little later."""
SENTENCES = frozenset(
    EgressRefused(verdict, hop=hop).api_error(PARAM).message.removeprefix(f"{PARAM}: {UNREADABLE}: ")
    for verdict in Verdict
    for hop in (0, 1)
)


@pytest.fixture(scope="session")
def stack(egress_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """One for all cases, so that none may leave anything behind for the next."""
    command = DevCommand(tmp_path_factory.mktemp("dev-egress") / "home")
    with running_dev(command, settings=lab_environment(egress_lab, **SOME_PATIENCE)) as stack:
        yield stack


@pytest.fixture(scope="session")
def patient_stack(egress_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """One that waits for servers as long as a test may last."""
    command = DevCommand(tmp_path_factory.mktemp("dev-patient") / "home")
    with running_dev(command, settings=lab_environment(egress_lab, **PATIENCE)) as stack:
        yield stack


@pytest.fixture(scope="session")
def connection(stack: DevStack) -> Iterator[Service]:
    """A client that keeps its connection."""
    service = Service(stack)
    yield service
    service.close()


@pytest.fixture
def service(connection: Service, lab: Lab) -> Service:
    """The same for a test that has the lab to itself."""
    del lab
    return connection


@pytest.fixture(scope="session")
def whole_log(stack: DevStack) -> NodeLog:
    return log_of(stack)


@pytest.fixture
def log(whole_log: NodeLog) -> NodeLog:
    """The node's log from the beginning of the test on."""
    whole_log.forget()
    return whole_log


@pytest.fixture
def counts() -> EgressCounts:
    """What the node's log says that was decided."""
    return EgressCounts()


@pytest.fixture
def dialled() -> list[str]:
    """What can be known here of another process's connections: every server and canary that had one.

    Of connections to elsewhere nothing is seen; the suite of the guard itself hears of those by an audit hook.
    """
    return []


@pytest.fixture
def case_here(case: dict[str, Any]) -> dict[str, Any]:
    """Half a surrogate pair is no character, so a body with its escape is no JSON, and the guard hears of nothing."""
    return case | {"expect": "not_json", "verdict": None} if _is_half(case["url"]) else case


@pytest.fixture
def outcome_of(service: Service, log: NodeLog, lab: Lab, counts: EgressCounts, dialled: list[str]) -> OutcomeOf:
    """In at the edge, by the public route, and back."""

    async def outcome(url: str) -> Outcome:
        answer = service.post(asking(service, url))
        fetches = log.fetches(answer.headers["request-id"])
        for fetch in fetches:
            counts.add(Verdict(fetch["verdict"]), fetch["received_bytes"])
        dialled.extend(lab.accepted)
        if lab.requests:
            assert lab.requests[0].split(b" ")[1] == path_of(url)
        if answer.status == 200:
            assert [fetch["verdict"] for fetch in fetches] == ["delivered"]
            return 200, "ok", None
        status, code, kind, param = answer.refusal()
        assert kind == ("permission_error" if status == 403 else "invalid_request_error")
        if param is not None:
            assert len(fetches) == 1
            check_words(answer, lab)
        return status, code, param

    return outcome


def asking(service: Service, *urls: str, **fields: Any) -> dict[str, Any]:
    """A request with images."""
    content = [*map(remote_image, urls), {"type": "text", "text": "What is this?"}]
    return service.body(messages=[{"role": "user", "content": content}], **fields)


def log_of(stack: DevStack) -> NodeLog:
    return NodeLog(stack.home / "logs" / "node.log")


def path_of(url: str) -> bytes:
    """What a request line has to hold, byte for byte."""
    rest = url.partition("://")[2].partition("#")[0]
    host = re.split(r"[/?]", rest)[0]
    tail = rest[len(host) :]
    return (tail if tail.startswith("/") else f"/{tail}").encode()


def check_words(answer: Answer, lab: Lab) -> None:
    """A sentence of the catalogue behind what agents look for, and nothing of what was found."""
    beginning = f"{PARAM}: {UNREADABLE}: "
    assert answer.words.startswith(beginning)
    told = answer.words.removeprefix(beginning)
    assert told in SENTENCES
    numbers = {int(number) for number in re.findall(r"[0-9]+", told)}
    assert numbers <= {MAX_URL_CHARACTERS, 200, 1, 65_535}
    assert not re.search(r"\.\w|::|\[|%|example|local|internal|header", told)
    assert not [name for name in lab.names.resolver.zone if name in told]


def _is_half(text: str) -> bool:
    return any(0xD800 <= ord(character) < 0xE000 for character in text)
