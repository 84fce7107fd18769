"""The whole service with a real model, once a session; a test that breaks it starts one of its own (stack.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.stack import MODELS, ROOT, DevCommand, DevStack, running_dev
from tests.integration.egress.conftest import lab_environment
from tests.integration.egress.lab import Lab

VLLM_READY_WITHIN_S = 300.0
PATIENCE = {"step_s": "60", "total_s": "120"}
"""Of fetches, longer than any test: what ends one then isn't the clock."""


@pytest.fixture(scope="session")
def dev_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """`dev_scripted` with the real small model, whose files are shared with `make run`: they take long to make."""
    home = tmp_path_factory.mktemp("dev-vllm") / "home"
    home.mkdir()
    MODELS.mkdir(parents=True, exist_ok=True)
    (home / "models").symlink_to(MODELS)
    with running_dev(DevCommand(home, engine="vllm"), within_s=VLLM_READY_WITHIN_S) as stack:
        yield stack


@pytest.fixture(scope="session")
def dev_tiny(egress_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """The service with the model that does what it is told: it thinks, calls tools and sees, the lab's images too."""
    settings = {
        **lab_environment(egress_lab, **PATIENCE),
        "B3OS_MODEL": str(ROOT / "tests" / "models" / "tiny-vision"),
        "B3OS_MODEL_REASONING_PARSER": "qwen3",
        "B3OS_MODEL_TOOL_PARSER": "qwen3_coder",
    }
    home = tmp_path_factory.mktemp("dev-tiny") / "home"
    with running_dev(DevCommand(home, engine="vllm"), within_s=VLLM_READY_WITHIN_S, settings=settings) as stack:
        yield stack
