"""Stop sequences: what is shown never depends on how the text was cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from node.translate.stop import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        text, stop = matcher.feed(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + matcher.flush(), None


def expected(stops: list[str], text: str) -> tuple[str, str | None]:
    """By definition: the first sequence to be complete, the longest of those that end together."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(
    st.lists(st.text("abc", min_size=1, max_size=5), max_size=5),
    st.text("abc", max_size=30),
    st.lists(st.integers(0, 30), max_size=8),
)
def test_any_cut_shows_what_the_definition_says(stops: list[str], text: str, cuts: list[int]) -> None:
    points = [0, *sorted(cut for cut in cuts if cut <= len(text)), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(points)]
    assert run(stops, pieces) == expected(stops, text)


def test_only_what_can_still_become_a_stop_is_held_back() -> None:
    matcher = StopMatcher(["</answer>"])
    assert matcher.feed("42 </ans") == ("42 ", None)
    assert matcher.feed("wers") == ("</answers", None)


def test_text_is_shown_at_once_without_stops() -> None:
    assert StopMatcher([]).feed("any") == ("any", None)


def test_a_long_stop_delays_no_text_that_it_cannot_match() -> None:
    assert StopMatcher(["z" * 10_000]).feed("hello") == ("hello", None)
