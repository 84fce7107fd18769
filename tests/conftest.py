"""What tests of every kind share."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.e2e.stack import DevCommand, DevStack, running_dev
from tests.patience import own_deadlines, patience
from tests.redis_server import running_redis

if TYPE_CHECKING:
    from tests.integration.egress.lab import Lab

# How long an example takes says nothing on a machine that stands still now and then. Each run tries the same ones, so
# that what fails is of the change.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("patient")


@pytest.fixture(scope="module", autouse=True)
def what_was_there_is_not_searched_for_garbage() -> None:
    """By thousands of tests and vLLM's modules a full search comes to take a second, in which the loop stands still
    and whoever waits for an answer gives up."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Libraries look at what is left of them when the process ends."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def redis_is_waited_for() -> Iterator[None]:
    """However long this process or its machine stands still."""
    with patience():
        yield


@pytest.fixture
def redis_is_given_up() -> Iterator[None]:
    """Within the product's own deadlines; a fixture that opens clients of Redis has to come after this one."""
    with own_deadlines():
        yield


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real Redis a session, as `b3os dev` configures it; tests keep apart by the names of their keys."""
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def dev_scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """The whole service, once a session: edge, node and Redis, with canned answers, and no name on the internet."""
    settings = {
        "B3OS_EDGE_LOGIN_FAILURES_PER_ADDRESS": "100000",  # all tests fail from one address
        "B3OS_EDGE_LOGIN_FAILURES_PER_ACCOUNT": "100000",
        "B3OS_EDGE_DEVICE_LOGINS_PER_ADDRESS": "100000",
        "B3OS_MODEL_OUTPUT_NANO_USD_PER_TOKEN": "10",
        "B3OS_EGRESS_NAMESERVERS": '["127.0.0.1:1"]',
    }
    with running_dev(DevCommand(tmp_path_factory.mktemp("dev") / "home"), settings=settings) as stack:
        yield stack


@pytest.fixture(scope="session")
def egress_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A little internet on loopback, once a session."""
    from tests.integration.egress.lab import running_lab  # what its servers send takes a second to make

    with running_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab
