"""`b3os usage`: tokens and money, by day, key or model. Decides the columns."""

from __future__ import annotations

import click

from shared.cli.user.command import Session, UserCommand
from shared.cli.user.console import say, say_json
from shared.cli.user.document import Document, dig, number_at, objects_at, plain
from shared.cli.user.money import render_usd
from shared.cli.user.table import render_table
from shared.cli.user.when import parse_day

_FIELDS = {"day": "day", "key": "key_id", "model": "model"}
_COUNTED = ("requests", "input_tokens", "output_tokens", "cached_tokens", "image_bytes")
_HEAD = ("REQUESTS", "IN", "OUT", "CACHED", "IMAGE BYTES", "COST")


def _day(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    del context, parameter
    try:
        return None if value is None else parse_day(value)
    except ValueError:
        raise click.BadParameter("a day looks like 2026-11-30") from None


@click.command(cls=UserCommand)
@click.option("--by", type=click.Choice(list(_FIELDS)), default="day", show_default=True)
@click.option("--from", "first", callback=_day, metavar="DAY", help="In UTC; the first of the month without it.")
@click.option("--to", "last", callback=_day, metavar="DAY", help="Included; today without it.")
@click.pass_obj
def usage(session: Session, /, *, by: str, first: str | None, last: str | None) -> None:
    """Show what your organization used, and what it cost."""
    answer = session.api().get("/v1/usage", {"by": by, "from": first, "to": last})
    if session.as_json:
        say_json(answer)
        return
    rows = [(plain(dig(row, _FIELDS[by])), row) for row in objects_at(answer, "data")]
    total = dig(answer, "total")
    if isinstance(total, dict) and len(rows) > 1:
        rows.append(("TOTAL", total))
    say(render_table((by.upper(), *_HEAD), [[group, *_counts(row)] for group, row in rows]))


def _counts(row: Document) -> list[str]:
    cost = number_at(row, "cost_nano_usd")
    return [*(plain(dig(row, name)) for name in _COUNTED), "-" if cost is None else render_usd(cost)]
