"""`b3os keys`: the API keys of an organization, over HTTP.

Decides the columns, and that a new secret stands alone on stdout. Must not know what a caller may give away: the
server says.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from shared.cli.user.api import segment
from shared.cli.user.command import Session, UserCommand, is_token
from shared.cli.user.console import note, note_facts, say, say_json, write
from shared.cli.user.document import Document, dig, number_at, objects_at, plain, text_at
from shared.cli.user.failure import Failure
from shared.cli.user.money import parse_cap, render_usd
from shared.cli.user.pages import fetch_list
from shared.cli.user.table import render_table
from shared.cli.user.when import parse_expiry

_KEYS = "/v1/keys"
_MOST_OF_A_PAGE = 200
_HEAD = ("ID", "SECRET", "STATUS", "PROJECT", "SCOPES", "CAP", "EXPIRES", "NAME")


def _parsed_by(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        del context, parameter
        try:
            return None if value is None else parse(value)
        except (ValueError, OverflowError) as error:
            raise click.BadParameter(str(error)) from None

    return read


def _expiry(text: str) -> str:
    try:
        return parse_expiry(text, datetime.now(UTC))
    except ValueError:
        raise ValueError("write 12h, 30d, 8w, 2030-01-31 or 2030-01-31T12:00:00Z") from None


@click.group()
def keys() -> None:
    """Create, list and revoke the API keys of your organization."""


@keys.command("list", cls=UserCommand)
@click.pass_obj
def list_(session: Session) -> None:
    """List keys; of each secret, the first four characters."""
    listed = fetch_list(
        session.api(), _KEYS, {}, limit=None, page_size=_MOST_OF_A_PAGE, cursor=None, sleep=time.sleep
    )
    if session.as_json:
        say_json(listed.page)
    else:
        say(render_table(_HEAD, [_row(key) for key in objects_at(listed.page, "data")]))
        if text_at(listed.page, "next_cursor"):
            note("There are more than this command lists.")
    if listed.failure is not None:
        raise listed.failure


@keys.command(cls=UserCommand)
@click.option("--name", required=True, help="What the key is for; shown in lists.")
@click.option("--project", required=True)
@click.option("--scope", "scopes", multiple=True, help="Repeatable; inference alone without it.")
@click.option("--cap", callback=_parsed_by(parse_cap), help="Dollars a day, a month or in total: 5/day, 12.50/month.")
@click.option("--expires", callback=_parsed_by(_expiry), help="12h, 30d, 8w, a day or a time.")
@click.option("--quiet", is_flag=True, help="Print the secret and not a word more.")
@click.pass_obj
def create(
    session: Session,
    /,
    *,
    name: str,
    project: str,
    scopes: tuple[str, ...],
    cap: Document | None,
    expires: str | None,
    quiet: bool,
) -> None:
    """Create a key and print its secret, once."""
    wanted = {"name": name, "project": project, "scopes": list(scopes), "spend_cap": cap, "expires_at": expires}
    answer = session.api().post(_KEYS, {field: value for field, value in wanted.items() if value})
    if session.as_json:
        say_json(answer)
        return
    secret = text_at(answer, "key")
    if not is_token(secret):
        raise Failure(f"the server made a key and sent no secret for it: {text_at(answer, 'id')}")
    if not quiet:
        note_facts({field: value for field, value in answer.items() if field != "key"})
        note("Keep the secret now: it is not shown again.")
    write(sys.stdout, secret + "\n")


@keys.command(cls=UserCommand)
@click.argument("key_id", metavar="ID")
@click.pass_obj
def revoke(session: Session, /, *, key_id: str) -> None:
    """Revoke a key for good."""
    answer = session.api().delete(f"{_KEYS}/{segment(key_id)}")
    if session.as_json:
        say_json(answer)
        return
    say(f"revoked {key_id}")


def _row(key: Document) -> list[str]:
    return [
        text_at(key, "id"),
        text_at(key, "hint") + "…",
        text_at(key, "status"),
        text_at(key, "project"),
        plain(dig(key, "scopes")),
        _cap(key),
        text_at(key, "expires_at") or "never",
        text_at(key, "name"),
    ]


def _cap(key: Document) -> str:
    nano_usd = number_at(key, "spend_cap", "nano_usd")
    return "-" if nano_usd is None else f"{render_usd(nano_usd)}/{text_at(key, 'spend_cap', 'period')}"
