"""`b3os requests`: what was asked, newest first, and one of it whole.

Decides the columns and the paging. A page may be empty and have a successor, where a filter matches little.
"""

from __future__ import annotations

import click

from shared.cli.user.api import Api, segment
from shared.cli.user.command import Session, UserCommand
from shared.cli.user.console import note, say, say_json
from shared.cli.user.document import Document, dig, number_at, objects_at, plain, text_at
from shared.cli.user.money import render_usd
from shared.cli.user.table import render_facts, render_table

_REQUESTS = "/v1/requests"
_MOST_OF_A_PAGE = 100
_MOST_PAGES = 1000
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
    page = fetch_page(session.api(), filters, limit=limit, cursor=cursor)
    if session.as_json:
        say_json(page)
        return
    say(render_table(_HEAD, [_row(record) for record in page["data"]]))
    if page["next_cursor"] is not None:
        note(f"There are more: --cursor {page['next_cursor']}")


def fetch_page(api: Api, filters: dict[str, str | None], *, limit: int, cursor: str | None) -> Document:
    """Up to `limit` records as one page, of as many of the server's as that takes."""
    records: list[Document] = []
    page: Document = {}
    for _ in range(_MOST_PAGES):
        asked = min(limit - len(records), _MOST_OF_A_PAGE)
        page = api.get(_REQUESTS, {**filters, "limit": asked, "cursor": cursor})
        records += objects_at(page, "data")
        before, cursor = cursor, text_at(page, "next_cursor") or None
        if cursor is None or cursor == before or len(records) >= limit:
            break
    return {**page, "data": records, "next_cursor": cursor}


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
