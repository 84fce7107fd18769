"""`b3os admin keys`: API keys of any organization, straight in Redis.

Decides how the commands read and what they print. Must not know how keys are stored. Keys that are made here hang on
no user (docs/decisions/0010).
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from edge.auth.credentials import mint_credential
from edge.auth.key_record import KeyRecord
from edge.auth.key_store import RedisKeyStore
from edge.auth.scopes import INFERENCE_SCOPES, SCOPES, order_scopes
from edge.cli import check_name, on_redis
from edge.times import iso
from shared.cli.user.table import render_table
from shared.ids import new_record_id

T = TypeVar("T")
DAY_S = 86_400
MAX_LABEL = 100
_HEAD = ("ID", "SECRET", "STATUS", "PROJECT", "SCOPES", "EXPIRES", "NAME")


@click.group()
def keys() -> None:
    """Create, list and revoke API keys of any organization."""


def check_label(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Callback of an option that people read."""
    del context, parameter
    if not (value.isprintable() and 1 <= len(value) <= MAX_LABEL):
        raise click.BadParameter(f"use 1 to {MAX_LABEL} printable characters")
    return value


@dataclass(frozen=True, slots=True)
class NewKey:
    """What `keys create` was asked for."""

    org: str
    project: str
    name: str
    scopes: tuple[str, ...]
    expires_in_days: int | None


@keys.command()
@click.option("--org", required=True, callback=check_name)
@click.option("--project", required=True, callback=check_name)
@click.option("--name", required=True, callback=check_label, help="What the key is for; shown in lists.")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="Repeatable; those of inference without it."
)
@click.option("--expires-in-days", type=click.IntRange(1, 3650))
@click.option("--create-missing", is_flag=True, help="Create the organization and the project if there are none.")
@click.option("--json", "as_json", is_flag=True)
def create(create_missing: bool, as_json: bool, **asked: Any) -> None:
    """Create a key and print it, once."""
    record, token = _on_store(lambda store: _create(store, NewKey(**asked), create_missing))
    if as_json:
        facts = _facts(record)
        wanted = ("org", "project", "name", "scopes", "expires_at")
        click.echo(json.dumps({"id": record.id, "key": token, **{name: facts[name] for name in wanted}}))
        return
    click.echo(token)
    click.echo(f"This is {record.id}. Keep it now: only its hash is stored, and it is not shown again.", err=True)


async def _create(store: RedisKeyStore, new: NewKey, create_missing: bool) -> tuple[KeyRecord, str]:
    credential = mint_credential()
    now_s = int(time.time())
    record = KeyRecord(
        id=new_record_id("key"),
        kind=credential.kind,
        org=new.org,
        project=new.project,
        name=new.name,
        scopes=order_scopes(new.scopes) or INFERENCE_SCOPES,
        status="active",
        hint=credential.hint,
        created_at_s=now_s,
        expires_at_s=None if new.expires_in_days is None else now_s + new.expires_in_days * DAY_S,
    )
    await store.create_key(credential.digest, record, create_missing=create_missing)
    return record, credential.token


@keys.command("list")
@click.option("--org", callback=check_name)
@click.option("--json", "as_json", is_flag=True)
def list_(org: str | None, as_json: bool) -> None:
    """List keys; of each secret, the first four characters."""
    records = [_facts(record) for record in _on_store(lambda store: store.list_keys(org))]
    if as_json:
        click.echo(json.dumps(records))
        return
    click.echo(render_table(_HEAD, [_row(facts) for facts in records]))


def _row(facts: dict[str, Any]) -> Sequence[str]:
    place = f"{facts['org']}/{facts['project']}"
    scopes, expires = ",".join(facts["scopes"]), facts["expires_at"] or "never"
    return (facts["id"], facts["hint"] + "…", facts["status"], place, scopes, expires, facts["name"])


@keys.command()
@click.argument("key_id")
def revoke(key_id: str) -> None:
    """Revoke a key for good; every edge refuses it within a second."""
    click.echo(f"revoked {_on_store(lambda store: store.revoke_key(key_id)).record.id}")


def _on_store(work: Callable[[RedisKeyStore], Awaitable[T]]) -> T:
    return on_redis(lambda redis: work(RedisKeyStore(redis)))


def _facts(record: KeyRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "org": record.org,
        "project": record.project,
        "name": record.name,
        "scopes": list(record.scopes),
        "status": record.status,
        "hint": record.hint,
        "created_at": iso(record.created_at_s),
        "expires_at": None if record.expires_at_s is None else iso(record.expires_at_s),
    }
