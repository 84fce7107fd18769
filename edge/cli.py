"""`b3os edge`, for operators on the machine, and what their commands under `b3os admin` share.

Decides how the commands read and what they print. Must not know how keys are signed, nor what is stored.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
from redis.asyncio import Redis
from redis.exceptions import RedisError

from edge.auth.key_store import is_name
from edge.auth.store import RecordExists, UnknownRecord
from edge.settings import StoreSettings
from edge.signing import BadSigningKey, create_key_files
from shared.redis import REFUSALS, connect_redis, refusal_of
from shared.settings import config_tables, load_settings

T = TypeVar("T")


@click.group(invoke_without_command=True)
@click.pass_context
def edge(context: click.Context) -> None:
    """Run the edge, the public side of the service."""
    if context.invoked_subcommand is None:
        from edge.__main__ import main  # the server's imports, which no other command needs

        main()


@edge.command()
@click.option("--private", "private_path", type=click.Path(path_type=Path), required=True, help="PEM for the edge.")
@click.option("--public", "public_path", type=click.Path(path_type=Path), required=True, help="JSON for the nodes.")
def keygen(private_path: Path, public_path: Path) -> None:
    """Make the key pair with which the edge proves callers to nodes. Overwrites nothing."""
    try:
        click.echo(f"made key {create_key_files(private_path, public_path)}")
    except BadSigningKey as error:
        raise click.ClickException(str(error)) from None


def check_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Callback of an option that names an organization or a project."""
    del context, parameter
    if value is not None and not is_name(value):
        raise click.BadParameter("use 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or digit")
    return value


def on_redis(work: Callable[[Redis], Awaitable[T]]) -> T:
    """Do something in the Redis of the settings; what goes wrong is told in one sentence."""
    settings = load_settings(StoreSettings, os.environ, config_tables(os.environ))

    async def run() -> T:
        redis = connect_redis(settings.redis.url)
        try:
            return await work(redis)
        finally:
            await redis.aclose()

    try:
        return asyncio.run(run())
    except (UnknownRecord, RecordExists) as error:
        raise click.ClickException(f"{error}") from None
    except (RedisError, OSError) as error:  # their texts may hold the URL, and so its password
        if (word := refusal_of(error)) is not None:
            raise click.ClickException(f"Redis refused with {word}: {REFUSALS[word]}") from None
        where = "B3OS_REDIS_URL says where it is" + ("" if settings.redis.model_fields_set else ", and is not set")
        raise click.ClickException(f"Redis at {settings.redis.place} does not answer as expected; {where}") from None
