"""The whole service, once a session for each engine; a test that breaks it starts one of its own (stack.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.stack import MODELS, DevCommand, DevStack, running_dev

VLLM_READY_WITHIN_S = 300.0


@pytest.fixture(scope="session")
def dev_scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """Edge, node and Redis, with canned answers."""
    with running_dev(DevCommand(tmp_path_factory.mktemp("dev") / "home")) as stack:
        yield stack


@pytest.fixture(scope="session")
def dev_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """The same with the real small model, whose files are shared with `make run`: they take long to make."""
    home = tmp_path_factory.mktemp("dev-vllm") / "home"
    home.mkdir()
    MODELS.mkdir(parents=True, exist_ok=True)
    (home / "models").symlink_to(MODELS)
    with running_dev(DevCommand(home, engine="vllm"), within_s=VLLM_READY_WITHIN_S) as stack:
        yield stack
