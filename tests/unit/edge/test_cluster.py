"""Who is there, who may be asked, and how busy an edge takes a node for."""

from __future__ import annotations

import logging

import pytest

from edge.breaker import FAILURES
from edge.cluster import NOT_STARTED_S, Carried, Cluster, Node
from shared.node_hosts import PRIVATE, NodeHosts
from tests.heartbeats import heartbeat


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def cluster_of(clock: Clock | None = None, **fixed: str) -> Cluster:
    return Cluster(fixed, NodeHosts(PRIVATE), clock or Clock())


def ids(nodes: object) -> list[str]:
    return sorted(node.id for node in nodes)  # type: ignore[attr-defined]


def only(cluster: Cluster) -> Node:
    (node,) = cluster.list_nodes()
    return node


def test_a_node_is_there_while_its_heartbeat_is() -> None:
    cluster = cluster_of()
    cluster.hear([heartbeat("n1"), heartbeat("n2")])
    assert ids(cluster.list_nodes()) == ["n1", "n2"]
    cluster.hear([heartbeat("n2")])
    assert ids(cluster.list_nodes()) == ids(cluster.candidates(None)) == ["n2"]
    cluster.hear([heartbeat("n1"), heartbeat("n2")])
    assert ids(cluster.candidates("b3os/a")) == ["n1", "n2"]


@pytest.mark.parametrize("is_whole", [True, False])
def test_who_stopped_is_gone_at_once_and_told_apart_from_who_died(
    caplog: pytest.LogCaptureFixture, *, is_whole: bool
) -> None:
    cluster = cluster_of()
    caplog.set_level(logging.INFO)
    cluster.hear([heartbeat("dead", state="draining"), heartbeat("n2"), heartbeat("stopped")])
    for _ in range(2):
        stopped = heartbeat("stopped", state="stopped", models=())
        cluster.hear([heartbeat("n2"), stopped], is_whole=is_whole)
    assert ids(cluster.list_nodes()) == (["n2"] if is_whole else ["dead", "n2"])
    died = [("WARNING", "node left", "dead")] if is_whole else []
    said = [(line.levelname, line.msg, line.facts["node"]) for line in caplog.records]  # type: ignore[attr-defined]
    assert said == [*died, ("INFO", "node stopped", "stopped")]


def test_who_stopped_and_is_back_is_there_again_and_who_waited_for_it_was_told() -> None:
    cluster, told = cluster_of(), []
    cluster.hear([heartbeat("n1")])
    with Carried() as carried, only(cluster).watched(lambda: told.append("gone")):
        carried.move(only(cluster))
        cluster.hear([heartbeat("n1", state="stopped")])
        assert (cluster.candidates(None), cluster.known_ids()) == ((), ["n1"])
        cluster.hear([heartbeat("n1", boot="b2", state="starting")])
    assert (only(cluster).state, told) == ("starting", ["gone"])


def test_a_node_of_the_settings_that_stopped_is_asked_once_it_tells_again() -> None:
    cluster = cluster_of(n1="http://a", n2="http://b")
    cluster.hear([heartbeat("n1"), heartbeat("n2")])
    for _ in range(2):
        cluster.hear([heartbeat("n1", state="stopped"), heartbeat("n2")])
        assert ids(cluster.list_nodes()) == ["n2"]
    cluster.hear([heartbeat("n1"), heartbeat("n2")])
    assert ids(cluster.list_nodes()) == ["n1", "n2"]


def test_nobody_is_lost_while_what_was_read_may_not_be_all() -> None:
    cluster = cluster_of()
    cluster.hear([heartbeat("n1"), heartbeat("n2")])
    cluster.hear([], is_whole=False)
    assert ids(cluster.list_nodes()) == ["n1", "n2"]


def test_who_waits_for_a_node_is_told_once_that_it_is_lost() -> None:
    cluster, told = cluster_of(), []
    cluster.hear([heartbeat("n1")])
    node = only(cluster)
    with node.watched(lambda: told.append("inner")):
        with node.watched(lambda: told.append("ended")):
            pass
        cluster.hear([])
        cluster.hear([])
    assert told == ["inner"]


def test_a_lost_node_that_comes_back_still_has_what_runs_on_it() -> None:
    cluster = cluster_of()
    cluster.hear([heartbeat("n1")])
    carried = Carried()
    carried.move(only(cluster))
    cluster.hear([])
    cluster.hear([heartbeat("n1")])
    assert only(cluster).in_flight == 1
    carried.move(None)
    cluster.hear([])
    assert cluster.known_ids() == []


def test_load_is_what_was_told_and_what_was_sent_and_ended_since() -> None:
    cluster = cluster_of()
    beat = heartbeat("n1", running=5, waiting=2)
    cluster.hear([beat])
    node = only(cluster)
    assert node.load == 7
    mine = [Carried() for _ in range(3)]
    for one in mine:
        one.move(node)
    assert node.load == 10
    cluster.hear([beat])  # read again, and no newer
    assert node.load == 10
    cluster.hear([heartbeat("n1", running=8, waiting=2)])
    assert node.load == 10
    mine[0].move(None)
    assert node.load == 9
    cluster.hear([heartbeat("n1", running=0)])  # not seen yet by its engine
    assert node.load == node.in_flight == 2


def test_a_request_that_moves_is_counted_once_and_at_its_end_nowhere() -> None:
    cluster = cluster_of(n1="http://a", n2="http://b")
    first, second = cluster.list_nodes()
    with Carried() as carried:
        carried.move(first)
        carried.move(second)
        assert (first.in_flight, second.in_flight) == (0, 1)
    assert (first.in_flight, second.in_flight) == (0, 0)


def test_a_node_that_fails_is_left_alone_and_then_tried_by_one() -> None:
    clock = Clock()
    cluster = cluster_of(clock, n1="http://a", n2="http://b")
    broken = next(node for node in cluster.list_nodes() if node.id == "n1")
    for _ in range(FAILURES):
        assert ids(cluster.candidates(None)) == ["n1", "n2"]
        cluster.note_begin(broken)
        cluster.note_failure(broken)
    assert ids(cluster.candidates(None)) == ["n2"]
    clock.now_s += 1
    assert ids(cluster.candidates(None)) == ["n1", "n2"]
    cluster.note_begin(broken)
    assert ids(cluster.candidates(None)) == ["n2"]
    cluster.note_success(broken)
    assert ids(cluster.candidates(None)) == ["n1", "n2"]


def test_where_all_fail_all_are_asked() -> None:
    cluster = cluster_of(n1="http://a")
    for _ in range(FAILURES):
        cluster.note_failure(only(cluster))
    assert ids(cluster.candidates(None)) == ["n1"]


def test_a_node_that_takes_nothing_is_left_alone_until_its_next_heartbeat_tells_more() -> None:
    clock = Clock()
    cluster = cluster_of(clock)
    cluster.hear([heartbeat("n1"), heartbeat("n2")])
    cluster.note_not_started(next(node for node in cluster.list_nodes() if node.id == "n1"))
    assert ids(cluster.candidates(None)) == ["n2"]
    clock.now_s += NOT_STARTED_S
    assert ids(cluster.candidates(None)) == ["n1", "n2"]


def test_another_process_under_an_id_is_not_blamed_for_the_last_one() -> None:
    cluster = cluster_of()
    cluster.hear([heartbeat("n1", boot="a"), heartbeat("n2")])
    node = next(node for node in cluster.list_nodes() if node.id == "n1")
    for _ in range(FAILURES):
        cluster.note_failure(node)
    cluster.hear([heartbeat("n1", boot="b", url="http://127.0.0.1:2"), heartbeat("n2")])
    assert (ids(cluster.candidates(None)), node.url) == (["n1", "n2"], "http://127.0.0.1:2")


def test_no_heartbeat_leads_to_where_no_node_may_be(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of()
    urls = (
        *("http://8.8.8.8:80", "http://169.254.169.254", "http://evil.example", "http://10.0.0.1@8.8.8.8"),
        *("https://[2001:db8::1]", "file:///etc/passwd", "http://10.0.0.1/path", "http://127.0.0.1.evil.example"),
    )
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            cluster.hear(heartbeat(f"n{number}", url=url) for number, url in enumerate(urls))
    assert cluster.list_nodes() == []
    assert len(caplog.records) == len(urls)  # each once
    assert not [record for record in caplog.records if "8.8.8.8" in record.getMessage()]


def test_a_node_that_moves_to_where_none_may_be_is_lost() -> None:
    cluster = cluster_of()
    cluster.hear([heartbeat("n1")])
    cluster.hear([heartbeat("n1", url="http://8.8.8.8")])
    assert cluster.list_nodes() == []


def test_nodes_of_the_settings_stay_where_they_are_and_are_all_there_is() -> None:
    cluster = cluster_of(n1="https://node.example")
    assert only(cluster).models is None
    cluster.hear([heartbeat("n1", url="http://127.0.0.1:1", state="starting"), heartbeat("n2")])
    assert (only(cluster).url, only(cluster).state) == ("https://node.example", "starting")
    cluster.hear([])
    assert cluster.list_nodes() == []
    cluster.hear([heartbeat("n1")])
    assert only(cluster).id == "n1"


def test_a_node_of_the_settings_that_never_told_anything_is_asked() -> None:
    cluster = cluster_of(n1="http://a", n2="http://b")
    cluster.hear([heartbeat("n2", model="b3os/b")])
    assert ids(cluster.candidates("b3os/b")) == ["n1", "n2"]
    assert ids(cluster.candidates("b3os/else")) == ["n1", "n2"]
