"""`b3os models`: what is served. Decides the columns."""

from __future__ import annotations

import click

from shared.cli.user.command import Session, UserCommand
from shared.cli.user.console import say, say_json
from shared.cli.user.document import Document, dig, objects_at, plain, text_at
from shared.cli.user.table import render_table

MODELS = "/v1/infer/models"
_HEAD = ("ID", "WINDOW", "MOST OUTPUT", "TAKES", "NAME")


@click.command(cls=UserCommand)
@click.pass_obj
def models(session: Session) -> None:
    """List the models that are served."""
    answer = session.api().get(MODELS)
    if session.as_json:
        say_json(answer)
        return
    say(render_table(_HEAD, [_row(model) for model in objects_at(answer, "data")]))


def _row(model: Document) -> list[str]:
    numbers = [plain(dig(model, name)) for name in ("context_window", "max_output_tokens")]
    return [text_at(model, "id"), *numbers, plain(dig(model, "input_modalities")), text_at(model, "display_name")]
