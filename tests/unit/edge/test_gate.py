"""Who counts as one on the routes that are not inference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge.api.gate import MANY, Asker, list_askers_at, list_askers_of
from edge.auth.authenticate import KeyIdentity, SessionIdentity
from edge.auth.key_record import KeyRecord
from edge.auth.sessions import SessionRecord

KEY = KeyRecord("key_1", "sk", "acme", "main", "n", (), "active", "hint", 1, None)
SESSION = SessionRecord("ses_1", "usr_1", "a@example.com", "Ada", "acme", "main", "csrf", 1)


def names(askers: list[Asker]) -> list[tuple[str, int]]:
    return [(asker.name, asker.times) for asker in askers]


def test_a_key_counts_for_itself_and_for_its_organization() -> None:
    assert names(list_askers_of(KeyIdentity("digest", KEY))) == [("key key_1", 1), ("org acme", MANY)]


def test_all_sessions_of_a_user_count_as_one_wherever_he_works() -> None:
    elsewhere = replace(SESSION, id="ses_2", org="other")
    both = [list_askers_of(SessionIdentity("digest", record, "host")) for record in (SESSION, elsewhere)]
    assert names(both[0]) == [("user usr_1", 1), ("org acme", MANY)]
    assert names(both[1]) == [("user usr_1", 1), ("org other", MANY)]


def test_a_session_that_works_nowhere_counts_for_its_user() -> None:
    identity = SessionIdentity("digest", replace(SESSION, org=None), "host")
    assert names(list_askers_of(identity)) == [("user usr_1", 1)]


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
