"""What vLLM is told: fast on a CPU, and an operator's own values win."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.catalog.served import ServedModel
from node.engine.vllm_setup import engine_arguments, set_environment


def test_a_cpu_gets_the_arguments_that_make_it_fast() -> None:
    arguments = engine_arguments(ServedModel("b3os/m", "M", "m", context_tokens=99), on_cpu=True)
    assert (arguments["model"], arguments["max_model_len"]) == ("m", 99)
    assert (arguments["dtype"], arguments["distributed_executor_backend"]) == ("float32", "uni")


def test_a_gpu_is_left_to_vllm() -> None:
    arguments = engine_arguments(ServedModel("b3os/m", "M", "m", reasoning_parser="qwen3"), on_cpu=False)
    assert arguments["reasoning_parser"] == "qwen3"
    assert not set(arguments) & {"dtype", "enforce_eager", "max_model_len", "distributed_executor_backend"}


def test_vllm_itself_may_fetch_from_nowhere() -> None:
    """An empty list would allow every host; a name under `.invalid` (RFC 6761) is nobody's."""
    for on_cpu in (True, False):
        (domain,) = engine_arguments(ServedModel("b3os/m", "M", "m"), on_cpu=on_cpu)["allowed_media_domains"]
        assert domain.endswith(".invalid")


def test_the_operator_s_arguments_win() -> None:
    model = ServedModel("b3os/m", "M", "m", engine={"dtype": "bfloat16", "seed": 7})
    assert engine_arguments(model, on_cpu=True)["dtype"] == "bfloat16"
    assert engine_arguments(model, on_cpu=True)["seed"] == 7


def test_the_operator_s_variables_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "environ", {"VLLM_LOGGING_LEVEL": "DEBUG"})
    set_environment(ServedModel("b3os/m", "M", str(tmp_path)), on_cpu=True)
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert os.environ["VLLM_NO_USAGE_STATS"] == os.environ["HF_HUB_OFFLINE"] == "1"
    assert int(os.environ["OMP_NUM_THREADS"]) >= 1
