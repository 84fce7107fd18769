"""One real engine for all tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from node.catalog.served import ServedModel
from node.engine.vllm_engine import VllmEngine
from tests.vllm_fixture import small_model, start_smollm2


@pytest.fixture(scope="session")
def smollm2() -> ServedModel:
    """The small model, ready on disk."""
    return small_model()


@pytest.fixture(scope="session")
async def vllm_engine(smollm2: ServedModel) -> AsyncIterator[VllmEngine]:
    """The small model, loaded."""
    engine = await start_smollm2(smollm2)
    yield engine
    await engine.shutdown()
    del engine._engine  # vLLM's __del__ fails if it runs as late as the interpreter's end
