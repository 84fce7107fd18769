"""Is a model's folder there, and if not, can it be made?

Decides what preparing means by the kind of source: our small default is made, an operator's folder must be one, and
a hub id is vLLM's to fetch. Must not import anything heavy.
"""

from __future__ import annotations

from pathlib import Path

from node.catalog import smollm2
from node.catalog.served import ServedModel
from node.catalog.smollm2 import ModelNotReady, Report


def make_ready(model: ServedModel, models_dir: Path, report: Report) -> None:
    """Do what is left to do, one line to `report` per step.

    Raises:
        ModelNotReady: it can't be done; the message is one sentence.
    """
    if _is_default(model, models_dir):
        smollm2.prepare(models_dir, report)
    elif _is_path(model.source):
        check_ready(model)
    else:
        report(f"vLLM fetches {model.source} from its hub when the node starts")


def is_ready(model: ServedModel, models_dir: Path) -> bool | None:
    """Whether the model lies on this disk; None when only vLLM knows."""
    if _is_default(model, models_dir):
        return smollm2.is_prepared(models_dir)
    return _has_config(model.source) if _is_path(model.source) else None


def check_ready(model: ServedModel) -> None:
    """Look for the folder, as far as the source is one.

    Raises:
        ModelNotReady: it isn't there, or isn't a model's.
    """
    if not _is_path(model.source) or _has_config(model.source):
        return
    if Path(model.source).name == smollm2.FOLDER:
        raise ModelNotReady(f"{model.source} is not there yet: run `b3os node models prepare`")
    raise ModelNotReady(f"{model.source} is not the folder of a model: it has no config.json")


def _is_default(model: ServedModel, models_dir: Path) -> bool:
    return model.source == str(smollm2.folder(models_dir))


def _has_config(source: str) -> bool:
    return (Path(source) / "config.json").is_file()


def _is_path(source: str) -> bool:
    """A hub id has one slash, and nothing of that name lies here."""
    return Path(source).exists() or source.startswith((".", "/", "~")) or source.count("/") != 1
