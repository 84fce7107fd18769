"""The node's part of the `b3os` command: run a node, list models, make one ready."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from node.catalog import smollm2
from node.catalog.gpu import has_nvidia_gpu
from node.catalog.served import ServedModel, resolve_model
from node.settings import NodeSettings
from shared.settings import config_tables, load_settings


@click.command()
def node() -> None:
    """Run a node: the model and its Messages API."""
    from node.__main__ import main

    main()


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def models(context: click.Context, *, as_json: bool) -> None:
    """List the model that is configured, or make it ready."""
    if context.invoked_subcommand is not None:
        return
    row = _describe(_configured(None))
    if as_json:
        click.echo(json.dumps([row]))
        return
    for name, value in row.items():
        click.echo(f"{name:18} {'-' if value is None else value}")


@models.command()
@click.option("--model", "source", help="A folder or hub id, instead of B3OS_MODEL.")
def prepare(source: str | None) -> None:
    """Make the model ready on this machine's disk."""
    model = _configured(source)
    try:
        _prepare(model)
    except smollm2.ModelNotReady as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{model.served_id} is ready: {model.source}")


def _configured(source: str | None) -> ServedModel:
    environ = dict(os.environ) if source is None else {**os.environ, "B3OS_MODEL": source}
    settings = load_settings(NodeSettings, environ, config_tables(environ))
    return resolve_model(settings.model, has_gpu=has_nvidia_gpu(), models_dir=_models_dir())


def _models_dir() -> Path:
    return Path(os.environ.get("B3OS_HOME", ".b3os")) / "models"


def _prepare(model: ServedModel) -> None:
    """A folder must be a model; the small default is made here; a hub id is fetched by vLLM when it starts."""
    if model.source == str(smollm2.folder(_models_dir())):
        smollm2.prepare(_models_dir(), click.echo)
    elif _is_path(model.source) and not (Path(model.source) / "config.json").is_file():
        raise smollm2.ModelNotReady(f"{model.source} is not the folder of a model: it has no config.json")
    elif not _is_path(model.source):
        click.echo(f"vLLM fetches {model.source} from its hub when the node starts")


def _is_path(source: str) -> bool:
    """A hub id has one slash, and nothing of that name lies here."""
    return Path(source).exists() or source.startswith((".", "/", "~")) or source.count("/") != 1


def _describe(model: ServedModel) -> dict[str, Any]:
    is_ready = smollm2.is_prepared(_models_dir()) or model.source != str(smollm2.folder(_models_dir()))
    return {
        "id": model.served_id,
        "name": model.display_name,
        "source": model.source,
        "prepared": is_ready,
        "context_tokens": model.context_tokens,
        "max_request_bytes": model.max_request_bytes,
        "reasoning_parser": model.reasoning_parser,
        "tool_parser": model.tool_parser,
        "input_nano_usd_per_token": model.input_nano_usd_per_token,
        "output_nano_usd_per_token": model.output_nano_usd_per_token,
    }
