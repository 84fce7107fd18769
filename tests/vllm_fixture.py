"""The real engine on the small model, for tests that share it: it takes 15 to 60 s to start."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

from node.catalog import smollm2
from node.catalog.served import ServedModel, resolve_model
from node.engine.vllm_engine import VllmEngine, start_vllm_engine
from node.settings import ModelSection

MODELS = Path(__file__).parents[1] / ".b3os" / "models"


def small_model() -> ServedModel:
    """The default without a GPU, made on the first call and kept in the git-ignored `.b3os`."""
    smollm2.prepare(MODELS, print)
    return resolve_model(ModelSection.model_validate({}), has_gpu=False, models_dir=MODELS)


async def start_smollm2(model: ServedModel | None = None) -> VllmEngine:
    """A ready engine; the caller shuts it down."""
    if model is None:
        model = await asyncio.to_thread(small_model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates what vLLM and torch itself still use, at import
        return await start_vllm_engine(model)
