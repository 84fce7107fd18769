"""`b3os requests`: what was asked, newest first, and one of it whole.

Decides the columns.
"""

from __future__ import annotations

import shlex
import time

import click

from shared.cli.user.api import segment
from shared.cli.user.command import Session, UserCommand
from shared.cli.user.console import note, say, say_json
from shared.cli.user.document import Document, dig, number_at, objects_at, plain, text_at
from shared.cli.user.money import render_usd
from shared.cli.user.pages import fetch_list
from shared.cli.user.table import render_facts, render_table

_REQUESTS = "/v1/requests"
_MOST_OF_A_PAGE = 100
_HEAD = ("ID", "TIME", "STATUS", "OUTCOME", "IN", "OUT", "COST", "MS", "MODEL", "KEY")


@click.command(cls=UserCommand)
@click.argument("request_id", metavar="[ID]", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="The most to list.")
@click.option("--status", help="An HTTP status, or an outcome such as `running` or `failed`.")
@click.option("--key", help="The id of a key.")
@click.option("--model")
@click.option("--cursor", help="Where an earlier list ended.")
@click.pass_obj
def requests(
    session: Session,
    /,
    *,
    request_id: str | None,
    limit: int,
    status: str | None,
    key: str | None,
    model: str | None,
    cursor: str | None,
) -> None:
    """List the last requests of your organization, or show one."""
    if request_id is not None:
        _show_one(session, session.api().get(f"{_REQUESTS}/{segment(request_id)}"))
        return
    filters = {"status": status, "key": key, "model": model}
    listed = fetch_list(
        *(session.api(), _REQUESTS, filters),
        limit=limit,
        page_size=_MOST_OF_A_PAGE,
        cursor=cursor,
        sleep=time.sleep,
    )
    if session.as_json:
        say_json(listed.page)
    else:
        say(render_table(_HEAD, [_row(record) for record in objects_at(listed.page, "data")]))
        if following := text_at(listed.page, "next_cursor"):
            note(f"There are more: --cursor {shlex.quote(following)}")
    if listed.failure is not None:
        raise listed.failure


def _show_one(session: Session, record: Document) -> None:
    if session.as_json:
        say_json(record)
        return
    say(render_facts(record))


def _row(record: Document) -> list[str]:
    cost = number_at(record, "cost_nano_usd")
    return [
        text_at(record, "id"),
        text_at(record, "created_at"),
        plain(dig(record, "status")),
        text_at(record, "outcome"),
        *(plain(dig(record, "usage", name)) for name in ("input_tokens", "output_tokens")),
        "-" if cost is None else render_usd(cost),
        plain(dig(record, "total_ms")),
        text_at(record, "model"),
        text_at(record, "key_id"),
    ]
