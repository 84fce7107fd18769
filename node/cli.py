"""The node's part of the `b3os` command: run a node, show its model, make that ready."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from node.catalog.gpu import has_nvidia_gpu
from node.catalog.ready import is_ready, make_ready
from node.catalog.served import ServedModel, resolve_model
from node.catalog.smollm2 import ModelNotReady
from node.settings import NodeSettings
from shared.settings import config_tables, load_settings


@click.group(invoke_without_command=True)
@click.pass_context
def node(context: click.Context) -> None:
    """Run a node: the model and its Messages API."""
    if context.invoked_subcommand is None:
        from node.__main__ import main  # the server's imports, which no other command needs

        main()


@node.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def models(context: click.Context, *, as_json: bool) -> None:
    """Show the model that is configured, or make it ready."""
    if context.invoked_subcommand is not None:
        return
    row = _describe(_configured(None))
    if as_json:
        click.echo(json.dumps([row]))
        return
    for name, value in row.items():
        click.echo(f"{name:26} {'-' if value is None else value}")


@models.command()
@click.option("--model", "source", help="A folder or hub id, instead of B3OS_MODEL.")
def prepare(source: str | None) -> None:
    """Make the model ready on this machine's disk."""
    model = _configured(source)
    try:
        make_ready(model, _models_dir(), click.echo)
    except ModelNotReady as error:
        raise click.ClickException(str(error)) from None
    if is_ready(model, _models_dir()):
        click.echo(f"{model.served_id} is ready: {model.source}")


def _configured(source: str | None) -> ServedModel:
    environ = dict(os.environ) if source is None else {**os.environ, "B3OS_MODEL": source}
    settings = load_settings(NodeSettings, environ, config_tables(environ))
    return resolve_model(settings.model, has_gpu=has_nvidia_gpu(), models_dir=_models_dir())


def _models_dir() -> Path:
    return Path(os.environ.get("B3OS_HOME", ".b3os")) / "models"


def _describe(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.served_id,
        "name": model.display_name,
        "source": model.source,
        "prepared": is_ready(model, _models_dir()),
        "context_tokens": model.context_tokens,
        "max_request_bytes": model.max_request_bytes,
        "reasoning_parser": model.reasoning_parser,
        "tool_parser": model.tool_parser,
        "input_nano_usd_per_token": model.input_nano_usd_per_token,
        "output_nano_usd_per_token": model.output_nano_usd_per_token,
    }
