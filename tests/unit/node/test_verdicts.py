"""What is remembered of judged guides, for each payer apart."""

from __future__ import annotations

from node.engine.verdicts import ENTRY_BYTES, Verdicts

KEY = b"k"


def test_what_one_payer_asked_another_knows_nothing_of() -> None:
    verdicts: Verdicts[str] = Verdicts(10 * ENTRY_BYTES)
    verdicts.keep("a", KEY, "yes", 3)
    assert (verdicts.get("a", KEY), verdicts.get("b", KEY)) == ("yes", None)


def test_who_has_most_gives_way_his_longest_unused_first() -> None:
    verdicts: Verdicts[int] = Verdicts(5 * ENTRY_BYTES)
    verdicts.keep("small", KEY, 0, 0)
    for number in range(4):
        verdicts.keep("greedy", b"%d" % number, number, 0)
    assert verdicts.get("greedy", b"0") == 0  # used, so that the second is the oldest
    verdicts.keep("greedy", b"4", 4, 0)
    assert [verdicts.get("greedy", b"%d" % number) for number in range(5)] == [0, None, 2, 3, 4]
    assert verdicts.get("small", KEY) == 0


def test_a_newcomer_finds_room_where_another_has_all_of_it() -> None:
    verdicts: Verdicts[int] = Verdicts(5 * ENTRY_BYTES)
    for number in range(5):
        verdicts.keep("greedy", b"%d" % number, number, 0)
    verdicts.keep("new", KEY, 9, ENTRY_BYTES)
    assert verdicts.get("new", KEY) == 9
    assert [verdicts.get("greedy", b"%d" % number) for number in range(5)] == [None, None, 2, 3, 4]


def test_a_verdict_that_is_kept_again_counts_once() -> None:
    verdicts: Verdicts[int] = Verdicts(3 * ENTRY_BYTES)
    for number in range(9):
        verdicts.keep("a", KEY, number, ENTRY_BYTES)
    assert verdicts.get("a", KEY) == 8
    verdicts.keep("a", b"other", 0, 0)
    assert verdicts.get("a", KEY) == 8


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    verdicts: Verdicts[int] = Verdicts(3 * ENTRY_BYTES)
    verdicts.keep("a", KEY, 1, 3 * ENTRY_BYTES)
    assert verdicts.get("a", KEY) is None
