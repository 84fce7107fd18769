"""A client of the whole service with canned answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.service import Service
from tests.e2e.stack import DevStack


@pytest.fixture(scope="module")
def service(dev_scripted: DevStack) -> Iterator[Service]:
    """One connection a module: a test that breaks it makes one of its own."""
    service = Service(dev_scripted)
    yield service
    service.close()
