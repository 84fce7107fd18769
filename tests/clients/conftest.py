"""Clients of the whole service, and what they share."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from anthropic import Anthropic

from tests.clients.golden import MODEL
from tests.clients.recorder import Recorder
from tests.e2e.stack import DevStack
from tests.e2e.unheard import run_b3os


@pytest.fixture
def recorder() -> Recorder:
    """Sees every request of the test's client."""
    return Recorder()


@pytest.fixture
def client(dev_scripted: DevStack, recorder: Recorder) -> Iterator[Anthropic]:
    """With the SDK's own retries: where none is due, none must happen."""
    assert dev_scripted.model == MODEL
    with Anthropic(base_url=dev_scripted.base_url, auth_token=dev_scripted.api_key, middleware=[recorder]) as client:
        yield client


@pytest.fixture(scope="session")
def key_without_scope(dev_scripted: DevStack) -> str:
    """A key that may list models and nothing else."""
    place = ["--org=dev", "--project=default"]
    words = ["admin", "keys", "create", *place, "--name=clients", "--scope=models:read", "--json"]
    said = run_b3os(*words, environment={**os.environ, "B3OS_REDIS_URL": dev_scripted.redis_url})
    return str(json.loads(said)["key"])
