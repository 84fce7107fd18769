"""What reaches the terminal.

Decides what is written raw and what tamed, and when there are colours: words of others never move a terminal, and a
pipe gets an answer as the model wrote it. Must not know what is said.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from shared.cli.user.document import Document, render_json
from shared.cli.user.table import render_facts
from shared.cli.user.text import one_line, tame

DIM = "\x1b[2m"
RESET = "\x1b[0m"


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads along. A stream that was closed before the start is None."""
    return stream is not None and stream.isatty()


def has_colours(stream: TextIO | None) -> bool:
    """Whether escape sequences of ours are welcome (no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(stream: TextIO | None, text: str) -> None:
    """Write and flush, whatever the encoding can't hold."""
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def say(text: str) -> None:
    """A line, or several, of a result."""
    write(sys.stdout, tame(text) + "\n")


def note(text: str) -> None:
    """A line beside the result, for people: it goes to stderr, and is one whatever words of others are in it."""
    write(sys.stderr, one_line(text) + "\n")


def note_stop() -> None:
    """The word behind a terminal's `^C`, on a line of its own."""
    write(sys.stderr, "\nstopped\n")


def note_facts(document: Document) -> None:
    """Everything in an object beside the result, a line each, and an empty one behind them."""
    write(sys.stderr, render_facts(document) + "\n\n")


def say_json(document: object) -> None:
    """A document in one line; it is ASCII, so it needs no taming."""
    write(sys.stdout, render_json(document) + "\n")
