"""`b3os nodes`, for operators: which nodes tell of themselves, and how busy they are.

Decides what is shown. Must not know how heartbeats are stored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from edge.cli import on_redis
from shared.cli.user.table import render_table
from shared.heartbeat import Heartbeat, fetch_heartbeats

_HEAD = ("id", "state", "running", "waiting", "cache", "models", "url")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def nodes(*, as_json: bool) -> None:
    """Show the nodes of the cluster, as they tell of themselves in Redis."""
    found = on_redis(fetch_heartbeats)
    if as_json:
        click.echo(json.dumps([each.model_dump() for each in found]))
    elif found:
        click.echo(render_table(_HEAD, [_row(each) for each in found]))
    else:
        click.echo("no node tells of itself")


def _row(told: Heartbeat) -> Sequence[str]:
    cache = "-" if told.cache_usage is None else f"{told.cache_usage:.0%}"
    models = ",".join(card.id for card in told.models)
    return (told.id, told.state, str(told.running), str(told.waiting), cache, models, told.url)
