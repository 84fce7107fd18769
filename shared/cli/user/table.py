"""Rows and facts as text.

Decides how columns line up. Pure: cells are one line each, whatever is in them. Must not know what a column means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shared.cli.user.document import Document, flatten
from shared.cli.user.text import one_line

_LONGEST_CELL = 200


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A head and rows, with two spaces between columns; the last one is not padded."""
    cells = [list(head), *([one_line(cell, _LONGEST_CELL) or "-" for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def render_facts(document: Document) -> str:
    """Everything in an object, a line each: unknown fields are shown like known ones."""
    facts = [(one_line(name), one_line(value)) for name, value in flatten(document)]
    width = max((len(name) for name, _ in facts), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in facts)
