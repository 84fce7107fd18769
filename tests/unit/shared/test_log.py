"""A log line is short whatever is told in it, and quotes nobody."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis.exceptions import ResponseError

from edge.auth.credentials import mint_credential
from shared.log import (
    FIRST_FRAMES,
    LAST_FRAMES,
    LONGEST_FACT,
    LONGEST_MESSAGE,
    LONGEST_TRACEBACK,
    JsonFormatter,
    request_id_var,
)

MEGABYTE = 1_000_000
MOST_OF_A_LINE = 100_000
PROMPT = "Tell me a secret of mine"


@contextmanager
def within_a_request() -> Iterator[None]:
    token = request_id_var.set("req_1")
    try:
        yield
    finally:
        request_id_var.reset(token)


def line_of(
    message: str = "x",
    error: BaseException | None = None,
    logger: str = "b3os",
    facts: dict[str, object] | None = None,
) -> dict[str, Any]:
    """What is written, read back."""
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord(logger, logging.ERROR, "f", 1, message, None, exc_info)
    record.facts = facts or {}
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert len(text) < MOST_OF_A_LINE
    line: dict[str, Any] = json.loads(text)
    return line


def raised_by(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def fail(error: BaseException) -> Callable[[], object]:
    def act() -> None:
        raise error

    return act


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    text = line_of("begun " + "x" * MEGABYTE + " ended")["message"]
    assert text.startswith("begun xx")
    assert text.endswith("xx ended")
    assert f"{MEGABYTE + 12 - LONGEST_MESSAGE} characters" in text
    assert len(text) < LONGEST_MESSAGE + 50


FACTS: dict[str, object] = {
    "text": "x" * MEGABYTE,
    "list": ["x"] * MEGABYTE,
    "deep": {"a": {"b": "x" * MEGABYTE}},
    "number": 1 << 99_999,
    "number within": {"a": 1 << 99_999},
    "no UTF-8": "\ud800" * MEGABYTE,
}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_is_bounded_whatever_it_is(name: str) -> None:
    assert len(str(line_of(facts={"fact": FACTS[name]})["fact"])) < LONGEST_FACT + 50


def test_facts_are_bounded_in_number() -> None:
    assert len(line_of(facts={f"f{at}": at for at in range(10_000)})) < 100


def test_short_facts_stay_what_they_are() -> None:
    facts: dict[str, object] = {
        "status": 200,
        "ms": 1.5,
        "is": True,
        "no": None,
        "phases": {"a": 1.0},
        "nodes": ["n1"],
        "text": "ä",
    }
    assert {name: value for name, value in line_of(facts=facts).items() if name in facts} == facts


def test_an_exception_of_a_megabyte_is_cut() -> None:
    text = line_of(error=raised_by(fail(ValueError("begun" + "x" * MEGABYTE + "ended"))))["traceback"]
    assert "ValueError: begunxx" in text
    assert text.endswith("xxended")
    assert len(text) < 2000


def test_ten_thousand_frames_are_told_by_the_first_and_the_last() -> None:
    def even(levels: int) -> None:
        odd(levels - 1)

    def odd(levels: int) -> None:
        if levels <= 1:
            raise ValueError("deep")
        even(levels - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        text = line_of(error=raised_by(lambda: even(10_000)))["traceback"]
    finally:
        sys.setrecursionlimit(limit)
    assert text.splitlines()[0].endswith("in raised_by")
    assert f"… {10_002 - FIRST_FRAMES - LAST_FRAMES} frames …" in text
    assert text.endswith("ValueError: deep")
    assert len(text) < LONGEST_TRACEBACK


def test_a_chain_without_end_is_told_from_its_nearer_end() -> None:
    error: BaseException = ValueError("0")
    for at in range(1, 5000):
        later = ValueError(str(at))
        later.__context__ = error
        error = later
    text = line_of(error=error)["traceback"]
    assert text.endswith("ValueError: 4999")
    assert "ValueError: 4998" in text
    assert "ValueError: 10\n" not in text


def test_a_circle_of_exceptions_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first
    assert line_of(error=first)["traceback"].count("ValueError") == 2


def test_what_led_to_it_comes_before_it() -> None:
    def act() -> None:
        try:
            raise KeyError("cause")
        except KeyError as error:
            raise OSError("consequence") from error

    text = line_of(error=raised_by(act))["traceback"]
    assert text.index("cause") < text.index("which led to") < text.index("consequence")
    assert f'File "{__file__}"' in text


def test_a_group_tells_of_those_within_it() -> None:
    text = line_of(error=raised_by(fail(ExceptionGroup("both", [OSError("one"), OSError("two")]))))["traceback"]
    assert text.index("OSError: two") < text.index("ExceptionGroup: both")
    assert "OSError: one" in text


def test_an_exception_that_can_not_be_told_is_named() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert line_of(error=Broken())["traceback"].endswith("Broken: (no message)")


@pytest.mark.parametrize("error", [ValueError(PROMPT), KeyError(PROMPT), RuntimeError(PROMPT), Exception(PROMPT)])
def test_within_a_request_no_message_is_told_that_may_quote_it(error: Exception) -> None:
    with within_a_request():
        later = raised_by(fail(OSError("broken pipe")))
        later.__context__ = error
        text = line_of(error=later)["traceback"]
    assert PROMPT not in text
    assert type(error).__name__ in text
    assert text.endswith("OSError: broken pipe")
    assert PROMPT in line_of(error=error)["traceback"]


def test_what_the_store_says_is_told_within_a_request_too() -> None:
    with within_a_request():
        assert "OOM" in line_of(error=ResponseError("OOM command not allowed"))["traceback"]


def test_the_loop_s_own_words_hold_no_exception_of_a_task() -> None:
    error = ValueError(PROMPT)
    line = line_of(f"Task exception was never retrieved\nfuture: <Task exception={error!r}>", error, "asyncio")
    assert line["message"] == "Task exception was never retrieved"
    assert PROMPT not in json.dumps(line)


@pytest.mark.parametrize("before", [0, 480, 995, 1990, 12_000, *range(400, 560, 9), *range(850, 1050, 9)])
@pytest.mark.parametrize("after", [None, 100_000], ids=["the middle is short", "and is cut out"])
def test_no_secret_is_told_whole_or_in_part(before: int, after: int | None) -> None:
    key, value, token = mint_credential().token, "A1_-" * 10 + "xyz", "eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJ4In0.c2lnbmF0"
    secrets = f" {key} __Host-b3os_session={value}; {token} -{token} "
    text = "x" * before + secrets + "x" * (before if after is None else after) + secrets + "x" * before
    whole = json.dumps(line_of(text, raised_by(fail(OSError(text))), facts={"flat": text, "deep": [text]}))
    for secret in (key[8:], value, token):
        parts = [secret[at : at + 8] for at in range(len(secret) - 8)]
        assert not [part for part in parts if part in whole]


def test_no_part_of_a_secret_is_told_where_many_others_are_masked_behind_it() -> None:
    """What is masked gets shorter, and what stands before it would move into sight."""
    first, others = "A1b2C3d4" * 150, "eyJ" + "x" * 1400 + ".y.z "
    text = "x" * 100_000 + f" eyJ{first}" + ".y.z " + others * 3
    for at in range(0, 600, 7):
        assert "A1b2C3d4" not in json.dumps(line_of(text + "z" * at, facts={"fact": text + "z" * at}))


def test_what_is_kept_of_a_long_text_is_as_long_as_ever() -> None:
    for size in (LONGEST_FACT, LONGEST_FACT + 1, LONGEST_FACT + 7999, LONGEST_FACT + 8001, MEGABYTE):
        text = line_of(facts={"fact": "a" + "x" * (size - 2) + "z"})["fact"]
        assert (text[0], text[-1]) == ("a", "z")
        assert text.count("x") == min(size, LONGEST_FACT) - 2
        assert size == LONGEST_FACT or f" {size - LONGEST_FACT} characters " in text
