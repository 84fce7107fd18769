"""`b3os dev`: the whole service on this machine, for development; nothing of it outlives the command.

Decides the options and how a failure is told: one sentence, exit code 1.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Literal

import click

_PORT = click.IntRange(1, 65534)


@click.command()
@click.option("--engine", type=click.Choice(["vllm", "scripted"]), default="vllm", show_default=True)
@click.option("--model", help="A folder or hub id that vLLM loads; B3OS_MODEL names it too.")
@click.option(
    "--home", type=click.Path(file_okay=False, path_type=Path), envvar="B3OS_HOME", default=".b3os", show_default=True
)
@click.option("--edge-port", type=_PORT, envvar="B3OS_EDGE_PORT", default=7700, show_default=True)
@click.option("--node-port", type=_PORT, envvar="B3OS_NODE_PORT", default=7710, show_default=True)
@click.option("--redis-port", type=_PORT, envvar="B3OS_DEV_REDIS_PORT", default=7720, show_default=True)
@click.option(
    "--with-parent", is_flag=True, help="Stop when the process that started this one ends, however it ends."
)
def dev(
    engine: Literal["vllm", "scripted"],
    model: str | None,
    home: Path,
    with_parent: bool,
    **ports: Any,
) -> None:
    """Run Redis, a node and an edge here, and print how to use them. Ctrl-C stops all."""
    from shared.cli.dev.errors import AlreadyTold, DevError
    from shared.cli.dev.plan import Plan
    from shared.cli.dev.session import run_session

    plan = Plan(engine, model, home.absolute(), **ports)
    try:
        plan.ports()
        asyncio.run(run_session(plan, os.environ, click.echo, with_parent=with_parent))
    except AlreadyTold:
        raise SystemExit(1) from None
    except (DevError, ValueError) as error:
        raise SystemExit(f"b3os dev: {error}") from None
    except OSError as error:
        where = error.filename or plan.home  # a full disk comes without a name
        raise SystemExit(f"b3os dev: {where}: {error.strerror or error}") from None
