"""Which other node may be asked, and what all of them serve."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from node.models import cut_page, merge_cards
from node.peers import Peers
from shared.errors import ApiError
from shared.heartbeat import LIFETIME_MS, Heartbeat, ModelCard
from shared.node_hosts import PRIVATE, NodeHosts
from tests.heartbeats import heartbeat


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def peers(clock: Clock) -> Peers:
    found = Peers("n1", NodeHosts(PRIVATE), clock)
    found.hear(
        [
            heartbeat("n1", model="b3os/own"),
            heartbeat("n2", model="b3os/b"),
            heartbeat("n3", model="b3os/b", state="starting"),
            heartbeat("n4", model="b3os/c", state="draining"),
            heartbeat("n5", model="b3os/evil", url="http://203.0.113.1"),
        ]
    )
    return found


ALL = frozenset(f"n{number}" for number in range(1, 6))


async def test_a_ready_node_of_the_token_s_audience_is_found(peers: Peers) -> None:
    for _ in range(10):
        found = await peers.find("b3os/b", ALL)
        assert found is not None
        assert found.id == "n2"
    starting = await peers.find("b3os/b", ALL - {"n2"})
    assert starting is not None
    assert starting.id == "n3"
    assert await peers.find("b3os/b", {"n1"}) is None


async def test_it_is_never_this_node_nor_one_where_none_may_be(peers: Peers) -> None:
    assert await peers.find("b3os/own", ALL) is None
    assert await peers.find("b3os/evil", ALL) is None


async def test_what_was_heard_too_long_ago_leads_nowhere_and_is_listed_all_the_same(
    peers: Peers, clock: Clock
) -> None:
    clock.now_s += LIFETIME_MS / 1000 + 0.1
    assert await peers.find("b3os/b", ALL) is None
    assert {card.id for _, card in peers.cards()} == {"b3os/b"}


async def test_who_was_heard_too_long_ago_is_asked_for_if_a_token_is_for_him(clock: Clock) -> None:
    asked: list[Collection[str]] = []

    async def ask(ids: Collection[str]) -> list[Heartbeat]:
        asked.append(sorted(ids))
        return [heartbeat("n2", model="b3os/b"), heartbeat("n3", model="b3os/b", url="http://203.0.113.1")]

    peers = Peers("n1", NodeHosts(PRIVATE), clock, ask)
    assert await peers.find("b3os/b", {"n1"}) is None
    assert asked == []
    found = await peers.find("b3os/b", {"n1", "n2", "n3"})
    assert found is not None
    assert found.id == "n2"
    assert asked == [["n2", "n3"]]
    assert await peers.find("b3os/b", {"n1", "n3"}) is None
    peers.hear([heartbeat("n2", model="b3os/b")])
    assert await peers.find("b3os/b", {"n1", "n2"}) is not None
    assert len(asked) == 2


def card(model: str, created_s: int = 1, name: str = "") -> ModelCard:
    return ModelCard(id=model, display_name=name or model, created_s=created_s)


def test_a_model_is_listed_once_as_its_first_node_tells_and_since_the_first_began() -> None:
    told = [("n2", card("b", 5, "second")), ("n1", card("b", 9, "first")), ("n3", card("a", 7))]
    merged = merge_cards(told)
    assert merged == merge_cards(told[::-1])
    assert [(each.id, each.display_name, each.created_s) for each in merged] == [("a", "a", 7), ("b", "first", 5)]


CARDS = [card(name) for name in "abcdef"]


@pytest.mark.parametrize(
    ("query", "ids", "has_more"),
    [
        ({}, "abcdef", False),
        ({"limit": "4"}, "abcd", True),
        ({"limit": "4", "after_id": "d"}, "ef", False),
        ({"limit": "2", "before_id": "e"}, "cd", True),
        ({"limit": "9", "before_id": "c"}, "ab", False),
        ({"after_id": "f"}, "", False),
        ({"after_id": "bb"}, "cdef", False),
        ({"limit": "1", "after_id": "a", "before_id": "d"}, "b", True),
    ],
)
def test_pages_go_both_ways(query: dict[str, str], ids: str, has_more: bool) -> None:
    page, more = cut_page(CARDS, query)
    assert ("".join(each.id for each in page), more) == (ids, has_more)


def test_walking_through_pages_meets_every_model_once() -> None:
    seen: list[str] = []
    query = {"limit": "1"}
    while True:
        page, has_more = cut_page(CARDS, query)
        seen += [each.id for each in page]
        if not has_more:
            break
        query["after_id"] = page[-1].id
    assert seen == list("abcdef")


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1", "٣", ""])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    with pytest.raises(ApiError, match="limit"):
        cut_page(CARDS, {"limit": limit})
