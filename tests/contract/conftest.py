"""A client of the whole service with canned answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.people import Person, make_person
from tests.contract.service import Service
from tests.e2e.stack import DevStack


@pytest.fixture(scope="module")
def service(dev_scripted: DevStack) -> Iterator[Service]:
    """One connection a module: a test that breaks it makes one of its own."""
    service = Service(dev_scripted)
    yield service
    service.close()


@pytest.fixture(scope="session")
def email(dev_scripted: DevStack) -> str:
    """The address of an owner of `dev`."""
    return make_person(dev_scripted)


@pytest.fixture
def person(service: Service, email: str) -> Person:
    """That owner, logged in."""
    person = Person(service, email)
    person.log_in()
    return person
