"""What takeovers, rolling restarts and soaks are judged by, on requests that were never made."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.chaos.load import HELD, SHORT, STREAM, Ask, Kind
from tests.chaos.rolling import Restart, was_cut_by_drain
from tests.chaos.soak import fit_per_hour, name_left_tasks
from tests.chaos.takeover import Findings, Kill
from tests.e2e.money.audit import Books
from tests.e2e.money.client import Call
from tests.e2e.money.storm import Storm, render
from tests.e2e.money.verdict import Account, Verdict

KILL = Kill("n1", 10.0)


def ask_of(kind: Kind, sent_s: float, done_s: float, **facts: Any) -> Ask:
    """A request with an answer from n2, unless `facts` say otherwise."""
    call = Call(cast("Any", None), cast("Any", SimpleNamespace(name="e1")), {"stream": kind.stream})
    whole: dict[str, Any] = {"status": 200, "request_id": "req_1", "is_whole": True, "text": kind.text, "node": "n2"}
    for name, value in (whole | facts).items():
        setattr(call, name, value)
    return Ask(kind, 0, call, sent_s, done_s)


def books_of(node: str) -> Books:
    """In which that request was at this node."""
    return Books([], Counter(), {}, {"req_1": cast("Any", SimpleNamespace(node=node))})


def found(*asks: Ask, node: str = "n1") -> Findings:
    """With one death."""
    findings = Findings()
    findings.read(asks, [KILL], books_of(node))
    return findings


BROKEN = {"is_whole": False, "code": "node_unavailable", "text": "w0 "}


def test_a_stream_that_the_dead_node_had_begun_may_break() -> None:
    assert found(ask_of(STREAM, 9, 10.1, **BROKEN)).lost == []


@pytest.mark.parametrize(
    ("ask", "node"),
    [
        (ask_of(STREAM, 9, 10.1, **BROKEN), "n3"),
        (ask_of(STREAM, 10.2, 13, **BROKEN), "n1"),
        (ask_of(STREAM, 9, 10.1, is_whole=False, text="w0 "), "n1"),
        (ask_of(STREAM, 9, 10.1, is_whole=False, text="w0 ", broke=True), "n1"),
        (ask_of(HELD, 9.8, 10.1, is_whole=False, text="", status=503, code="node_unavailable"), "n1"),
        (ask_of(SHORT, 9, 9.1, text="w0 w0 "), "n1"),
    ],
    ids=["another node", "after its death", "no event", "no end", "not begun", "twice the text"],
)
def test_everything_else_is_lost(ask: Ask, node: str) -> None:
    assert len(found(ask, node=node).lost) == 1


def test_what_was_held_is_taken_over_when_its_script_has_begun_anew() -> None:
    assert found(ask_of(HELD, 9.6, 10.0 + HELD.script_s + 0.25)).taken_over_s == [pytest.approx(0.25)]
    assert found(ask_of(HELD, 9.6, 9.6 + HELD.script_s + 0.05)).taken_over_s == []


def test_the_next_answer_counts_from_the_death_of_the_node_that_gave_the_last() -> None:
    before, after = ask_of(SHORT, 9, 9.5, node="n1"), ask_of(SHORT, 9.9, 10.75)
    assert found(before, after).next_s == [0.75]
    assert found(ask_of(SHORT, 9, 9.5, node="n3"), after).next_s == []


def test_only_the_end_of_draining_excuses_a_stream_that_was_cut() -> None:
    restarts, books = [Restart("n1", 10, 16, 18)], books_of("n1")
    cut = ask_of(STREAM, 9, 15.1, **BROKEN)
    assert was_cut_by_drain(cut, restarts, 5, books)
    assert not was_cut_by_drain(cut, restarts, 5, books_of("n2"))
    assert not was_cut_by_drain(ask_of(STREAM, 9, 11, **BROKEN), restarts, 5, books)
    assert not was_cut_by_drain(ask_of(HELD, 9, 15.1, status=503), restarts, 5, books)


def test_memory_that_grows_by_a_mebibyte_a_minute_grows_by_sixty_an_hour() -> None:
    assert fit_per_hour([0, 60, 120], [80, 81, 82]) == pytest.approx(60)


def test_a_part_that_has_more_tasks_than_it_began_with_is_named_and_one_with_fewer_is_not() -> None:
    before = {"n1": 30, "n2": 30, "e1": 12}
    assert name_left_tasks(before, {"n1": 30, "n2": 29, "e1": 12}) == []
    assert name_left_tasks(before, {"n1": 30, "n2": 31, "e1": 12}) == ["n2 began with 30 tasks, and has 31"]


def test_a_stream_that_ends_without_a_word_is_unaccounted_unless_its_caller_left() -> None:
    silent = ask_of(STREAM, 9, 10, is_whole=False, text="w0 ", request_id="").call
    for patience, count in ((None, 1), (1, 0)):
        verdict = Verdict()
        verdict.read([Account(silent, patience)], Books([], Counter(), {}, {}))
        assert len(verdict.unaccounted) == count


def test_a_trouble_that_was_not_possible_is_shown_as_not_run() -> None:
    storm = Storm(cast("Any", None), cast("Any", None), 1, ["node killed"])
    loose = cast("Any", SimpleNamespace(held=0, leases=0, spooled=0, running=0))
    table = render(storm, Verdict(), loose, 0, ["node cut off"])
    assert [line.split()[-1] for line in table.splitlines()[:2]] == ["0", "run"]
    assert "node cut off" in table
