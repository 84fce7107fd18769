"""Words of others can't move a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.cli.user.document import flatten, parse_json, render_json
from shared.cli.user.failure import Failure
from shared.cli.user.table import render_facts, render_table
from shared.cli.user.text import one_line, redact, tame

ANY_TEXT = st.text(st.characters(categories=None))  # halves of surrogates too


def moves_a_terminal(text: str) -> bool:
    harmful = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
    return any(unicodedata.category(each) in harmful and each not in "\n\t\u200c\u200d" for each in text)


@given(ANY_TEXT)
@example("\x1b]0;title\x07\x1b[2J\x9b31m\x7f\r\u202e\ud800")
@example("\u061c\u200e\u200f\u2028\u2029\u202a\u2066\ufeff\u00ad\u200b\U000e0041\ue000\U0010fffd")
def test_nothing_that_moves_a_terminal_survives(text: str) -> None:
    assert not moves_a_terminal(tame(text))
    tame(text).encode()


@given(ANY_TEXT)
def test_one_line_is_one_and_bounded(text: str) -> None:
    line = one_line(text, 20)
    assert len(line) <= 20
    assert line.splitlines() in ([], [line])


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf", "Co", "Zl", "Zp"))))
@example("tabs\tand\nlines stay, and so do accents é and emoji 👩‍💻")
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert tame(text) == text


def test_an_escape_is_shown_as_a_picture() -> None:
    assert tame("a\x1b[31mb\r\nc\x00\x7f") == "a␛[31mb\nc␀␡"


@given(ANY_TEXT)
def test_printed_json_is_printable_ascii_and_the_same_document(text: str) -> None:
    printed = render_json({"a": text})
    assert printed.isascii()
    assert not moves_a_terminal(printed)
    assert parse_json(printed) == {"a": text}


@pytest.mark.parametrize("kind", ["sk", "pat"])
def test_no_failure_tells_a_secret(kind: str) -> None:
    secret = f"b3os_{kind}_" + "a" * 32 + "_bbbbbbb"
    message = Failure(f"the key {secret} is bad").message
    assert "aaaa" not in message
    assert "bbbb" not in message
    assert message == f"the key b3os_{kind}_… is bad"
    assert redact("b3os_skip") == "b3os_skip"


def test_tables_line_up_and_each_row_is_a_line() -> None:
    table = render_table(("A", "LONGER"), [("x\ny\x1b[2J", ""), ("1", "2")])
    assert table.split("\n") == ["A        LONGER", "x y␛[2J  -", "1        2"]


def test_facts_show_fields_that_nobody_knows() -> None:
    document = {"id": "a", "deep": {"er": {"est": 1}}, "list": ["x", "y"], "none": None, "objects": [{"a": 1}]}
    assert dict(flatten(document)) == {
        "id": "a",
        "deep.er.est": "1",
        "list": "x, y",
        "none": "-",
        "objects": '[{"a": 1}]',
    }
    assert render_facts({"a": "x\x1bx", "long\nname": 1}) == "a          x␛x\nlong name  1"
