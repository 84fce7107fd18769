"""Who counts as one on the routes that are not inference, and what others leave him."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from edge.api.gate import (
    AT_ONCE,
    AT_ONCE_OF_MANY,
    AT_ONCE_SURELY,
    MANY,
    SURE,
    Asker,
    Place,
    Way,
    list_askers_at,
    list_ways_of,
)
from edge.auth.authenticate import KeyIdentity, SessionIdentity
from edge.auth.key_record import KeyRecord
from edge.auth.sessions import SessionRecord
from shared.errors import ApiError

KEY = KeyRecord("key_1", "sk", "acme", "main", "n", ("keys:read",), "active", "hint", 1, None)
SESSION = SessionRecord(
    "ses_1", "usr_1", "a@example.com", "Ada", "acme", "main", "csrf", 1, role="member", org_is_active=True
)


def names(askers: Way) -> list[tuple[str, float]]:
    return [(asker.name, asker.times) for asker in askers]


def ways_of_key(record: KeyRecord) -> list[list[tuple[str, float]]]:
    return [names(way) for way in list_ways_of(KeyIdentity("digest", record))]


def ways_of_session(record: SessionRecord) -> list[list[tuple[str, float]]]:
    return [names(way) for way in list_ways_of(SessionIdentity("digest", record, "host"))]


def test_a_key_counts_with_all_that_were_made_with_it() -> None:
    own = [[("key key_1", 1), ("org acme", MANY)], [("surely keys of key key_1", SURE)]]
    child = replace(KEY, id="key_2", parent=KEY, parent_digest="d1")
    grandchild = replace(KEY, id="key_3", parent=child, parent_digest="d2")
    assert [ways_of_key(record) for record in (KEY, child, grandchild)] == [own] * 3


def test_keys_and_tokens_count_for_the_user_on_whom_they_hang() -> None:
    key = replace(KEY, made_by="usr_1", maker_scopes=("keys:read",))
    child = replace(KEY, id="key_2", parent=key, parent_digest="d1")
    token = replace(key, id="tok_1", kind="pat")
    usual = [("user usr_1", 1), ("org acme", MANY)]
    assert ways_of_key(key) == ways_of_key(child) == [usual, [("surely keys of user usr_1", SURE)]]
    assert ways_of_key(token) == [usual, [("surely token tok_1", SURE)]]
    assert ways_of_session(SESSION)[0] == usual


def test_all_sessions_of_a_user_count_as_one_wherever_he_works() -> None:
    elsewhere = replace(SESSION, id="ses_2", org="other")
    assert ways_of_session(SESSION)[0] == [("user usr_1", 1), ("org acme", MANY)]
    assert ways_of_session(elsewhere)[0] == [("user usr_1", 1), ("org other", MANY)]


def test_a_switch_is_no_other_log_in() -> None:
    switched, anew = replace(SESSION, id="ses_2", org="other"), replace(SESSION, id="ses_3", ends_at_s=2)
    assert ways_of_session(switched)[1] == ways_of_session(SESSION)[1]
    assert ways_of_session(anew)[1] != ways_of_session(SESSION)[1]


@pytest.mark.parametrize(
    "record", [replace(SESSION, org=None), replace(SESSION, role=None), replace(SESSION, org_is_active=False)]
)
def test_a_session_that_may_do_nothing_there_does_not_count_for_the_organization(record: SessionRecord) -> None:
    assert ways_of_session(record)[0] == [("user usr_1", 1)]


def test_a_key_that_grants_nothing_does_not_count_for_the_organization() -> None:
    assert ways_of_key(replace(KEY, scopes=()))[0] == [("key key_1", 1)]


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("8.8.8.8", [("at 8.8.8.8", 1)]),
        ("2600:1:2:3::/64", [("at 2600:1:2:3::/64", 1), ("at 2600:1:2::/48", MANY)]),
        ("10.0.0.1", [("at 10.0.0.1", MANY)]),
        ("unknown", [("at unknown", MANY)]),
    ],
)
def test_an_address_counts_for_itself_and_for_its_site(address: str, counted: list[tuple[str, int]]) -> None:
    assert names(list_askers_at(address)) == counted


def test_whoever_may_be_all_may_ask_at_once() -> None:
    assert [asker.at_once for asker in list_askers_at("127.0.0.1")] == [None]
    assert None not in [asker.at_once for asker in list_askers_at("2600:1:2:3::/64")]


def member(user: str) -> list[Way]:
    return list_ways_of(SessionIdentity("digest", replace(SESSION, user=user), "host"))


def fill(running: Counter[str], ways: list[Way]) -> int:
    """How many run before one is refused."""
    for count in range(1000):
        try:
            Place(running, ways).take()
        except ApiError:
            return count
    raise AssertionError("nothing is ever refused")


def test_one_runs_so_many_at_once_and_an_organization_so_many() -> None:
    running = Counter[str]()
    assert [fill(running, member(user)) for user in "abc"] == [
        AT_ONCE + AT_ONCE_SURELY,
        AT_ONCE_OF_MANY - AT_ONCE + AT_ONCE_SURELY,
        AT_ONCE_SURELY,
    ]


def test_however_many_run_for_a_user_or_his_organization_he_has_some_in_each_log_in() -> None:
    running = Counter[str]()
    thief = replace(KEY, made_by="a", maker_scopes=("keys:read",))
    for ways in (list_ways_of(KeyIdentity("digest", thief)), member("b"), member("c")):
        fill(running, ways)
    assert fill(running, member("a")) == fill(running, member("d")) == AT_ONCE_SURELY


def test_a_place_is_free_while_it_is_left_and_after_it() -> None:
    running = Counter[str]()
    way = [Asker("one", "you", at_once=1)]
    place, other = Place(running, [way]), Place(running, [way])
    place.take()
    with place.left():
        other.take()
        other.give_back()
    with pytest.raises(ApiError):
        other.take()
    place.give_back()
    place.give_back()
    assert not running


def test_a_place_that_others_took_meanwhile_is_not_had_again() -> None:
    running = Counter[str]()
    way = [Asker("one", "you", at_once=1)]
    place, other = Place(running, [way]), Place(running, [way])
    place.take()
    with pytest.raises(ApiError), place.left():
        other.take()
    place.give_back()
    assert running == {"one": 1}
