"""`b3os chat`: one question, and the answer while it is written.

Decides what is asked and how an end is told. Must not know events (transcript.py), nor the terminal (screen.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

from shared.cli.user.api import Api
from shared.cli.user.attach import is_fed, read_image, read_stdin
from shared.cli.user.command import Session, UserCommand
from shared.cli.user.commands.models import MODELS
from shared.cli.user.console import note, say_json
from shared.cli.user.document import Document, objects_at, text_at
from shared.cli.user.failure import UNREACHABLE, USAGE, Failure
from shared.cli.user.screen import Screen
from shared.cli.user.transcript import Transcript

_MESSAGES = "/v1/infer/v1/messages"
_USUAL_MAX_TOKENS = 4096
_FROM_STDIN = "-"


@dataclass(frozen=True, slots=True)
class Question:
    """What `b3os chat` was asked. `model` is None for the only one that is served."""

    text: str | None
    model: str | None
    system: str | None
    max_tokens: int | None
    images: tuple[str, ...]
    thinking: int | None
    temperature: float | None


@click.command(cls=UserCommand)
@click.argument("text", required=False)
@click.option("--model", help="Needed where more than one is served.")
@click.option("--system", help="What the model is told before the question.")
@click.option("--max-tokens", type=click.IntRange(1), help=f"{_USUAL_MAX_TOKENS} without it, beside the thinking.")
@click.option("--image", "images", multiple=True, metavar="FILE|URL", help="Repeatable; stands before the text.")
@click.option("--thinking", type=click.IntRange(1), metavar="BUDGET", help="Tokens to think with.")
@click.option("--temperature", type=click.FloatRange(0, 1))
@click.option("--usage", "with_usage", is_flag=True, help="Tell on stderr what it took.")
@click.pass_obj
def chat(session: Session, /, *, with_usage: bool, **asked: Any) -> None:
    """Ask a model. What is piped in goes with the question, or is the question (`-`, or no TEXT)."""
    question = Question(**asked)
    content = _read_content(question)
    api = session.api()
    body = build_body(question, content, question.model or _only_model(api))
    with api.stream(_MESSAGES, body) as stream:
        transcript = Transcript(stream.request_id)
        (_print_events if session.as_json else _show_answer)(stream.events, transcript)
    _tell_end(transcript, with_usage=with_usage)


def build_body(question: Question, content: list[Document], model: str) -> Document:
    """The request for a question."""
    body: Document = {
        "model": model,
        "max_tokens": question.max_tokens or _USUAL_MAX_TOKENS + (question.thinking or 0),
        "stream": True,
        "messages": [{"role": "user", "content": content}],
    }
    if question.system is not None:
        body["system"] = question.system
    if question.temperature is not None:
        body["temperature"] = question.temperature
    if question.thinking is not None:
        body["thinking"] = {"type": "enabled", "budget_tokens": question.thinking}
    return body


def _read_content(question: Question) -> list[Document]:
    """Images, then the text, then what is piped in."""
    texts = [] if question.text in (None, _FROM_STDIN) else [str(question.text)]
    if question.text == _FROM_STDIN or is_fed():
        texts.append(read_stdin())
    text = "\n\n".join(part for part in texts if part.strip())
    if not text and not question.images:
        raise Failure("there is no question: give a text, or pipe one in", USAGE)
    blocks = [read_image(named) for named in question.images]
    return [*blocks, {"type": "text", "text": text}] if text else blocks


def _only_model(api: Api) -> str:
    ids = [text_at(model, "id") for model in objects_at(api.get(MODELS), "data")]
    if len(ids) != 1:
        served = ", ".join(ids) or "none"
        raise Failure(f"choose a model with --model; served are: {served}", USAGE)
    return ids[0]


def _print_events(events: Iterable[Document], transcript: Transcript) -> None:
    for event in events:
        say_json(event)
        transcript.feed(event)
        if transcript.has_ended:
            return


def _show_answer(events: Iterable[Document], transcript: Transcript) -> None:
    screen = Screen(sys.stdout)
    try:
        for event in events:
            words = transcript.feed(event)
            if words is not None:
                screen.show(words)
            if transcript.has_ended:
                return
    finally:  # an interruption too leaves the terminal in its own colours
        screen.end()


def _tell_end(transcript: Transcript, *, with_usage: bool) -> None:
    if transcript.error is not None:
        raise transcript.error.as_failure()
    if not transcript.is_whole:
        raise Failure(f"the answer broke off ({transcript.request_id or 'no request id'})", UNREACHABLE)
    if transcript.stop_reason not in ("", "end_turn", "stop_sequence"):
        note(f"The answer ended early: {transcript.stop_reason}.")
    if with_usage:
        note(transcript.render_usage())
