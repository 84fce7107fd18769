"""When another node has this one's id, and when what is told under it is only left over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pytest

from node.namesake import LOOK_EVERY_S, PATIENCE_S, SURE, TOLD_EVERY, IdTaken, Namesake, claim_id
from shared.heartbeat import EVERY_S, Heartbeat
from tests.heartbeats import heartbeat

OWN, OTHER = "http://10.0.0.1:7710", "http://10.0.0.2:7710"


class Registry:
    """What is told under an id, as time goes on."""

    def __init__(
        self, told: Heartbeat | None, then: Heartbeat | None = None, after_s: float = 2 * PATIENCE_S
    ) -> None:
        self.told, self.then, self.after_s, self.now_s = told, then, after_s, 0.0

    async def ask(self, ids: Collection[str]) -> Sequence[Heartbeat]:
        assert list(ids) == ["n1"]
        told = self.told if self.now_s < self.after_s else self.then
        return () if told is None else (told,)

    async def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s

    async def claimed_after_s(self) -> float:
        await claim_id(self.ask, "n1", OWN, lambda: self.now_s, self.sleep)
        return self.now_s


OLD = heartbeat("n1", url=OTHER, boot="other")


@pytest.mark.parametrize(
    "told",
    [
        None,
        heartbeat("n1", url=OTHER, state="stopped"),
        heartbeat("n1", url=OWN, boot="of this node, which was killed"),
    ],
    ids=["nothing", "it has stopped", "this node itself"],
)
async def test_a_node_that_nobody_stands_against_starts_at_once(told: Heartbeat | None) -> None:
    assert await Registry(told).claimed_after_s() == 0


async def test_the_second_of_two_does_not_start_and_says_where_the_other_is(caplog: pytest.LogCaptureFixture) -> None:
    newer = heartbeat("n1", url=OTHER, boot="other")
    with pytest.raises(IdTaken) as raised:
        await Registry(OLD, newer, after_s=EVERY_S).claimed_after_s()
    for part in (OWN, OTHER, "n1", "B3OS_NODE_ID"):
        assert part in str(raised.value)
    assert "\n" not in str(raised.value)
    assert [record.msg for record in caplog.records] == ["another node has this id"]


async def test_what_a_dead_node_left_behind_at_another_address_is_waited_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    took_s = await Registry(OLD).claimed_after_s()
    assert EVERY_S < PATIENCE_S <= took_s < PATIENCE_S + 2 * LOOK_EVERY_S
    assert caplog.records == []


@pytest.mark.parametrize("then", [None, heartbeat("n1", url=OTHER, boot="other", state="stopped")])
async def test_it_starts_as_soon_as_the_other_is_gone(then: Heartbeat | None) -> None:
    assert await Registry(OLD, then, after_s=1).claimed_after_s() < 1 + 2 * LOOK_EVERY_S


async def test_one_that_drains_elsewhere_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    registry = Registry(heartbeat("n1", url=OTHER, boot="other"), after_s=20)

    async def ask(ids: Collection[str]) -> Sequence[Heartbeat]:
        told = await registry.ask(ids)
        return [heartbeat("n1", url=OTHER, boot="other", beat=int(registry.now_s), state="draining") for _ in told]

    await claim_id(ask, "n1", OWN, lambda: registry.now_s, registry.sleep)
    assert 20 <= registry.now_s < 20 + 2 * LOOK_EVERY_S
    assert [record.msg for record in caplog.records] == ["the node of this id drains; waiting for it"]


def told_of(others: Iterable[Heartbeat | None], caplog: pytest.LogCaptureFixture) -> int:
    """How often it was told, of what beats found one after another."""
    namesake = Namesake("n1", OWN)
    for other in others:
        namesake.note(other)
    assert {record.msg for record in caplog.records} <= {"another node has this id"}
    return len(caplog.records)


def test_one_heartbeat_that_a_dead_process_left_is_no_other_node(caplog: pytest.LogCaptureFixture) -> None:
    assert told_of([OLD, *[None] * 100], caplog) == 0


def test_another_node_is_told_of_once_and_each_minute_that_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    assert told_of([OLD] * (SURE - 1), caplog) == 0
    assert told_of([OLD] * TOLD_EVERY, caplog) == 1
    assert told_of([OLD] * (TOLD_EVERY + SURE), caplog) == 1 + 2
    facts = caplog.records[0].facts  # type: ignore[attr-defined]
    assert facts == {"node": "n1", "own_url": OWN, "other_url": OTHER}


def test_a_heartbeat_between_two_of_ours_that_comes_late_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert told_of([OLD, None] * SURE, caplog) == 1


def test_one_that_is_gone_is_over_and_may_come_back(caplog: pytest.LogCaptureFixture) -> None:
    stopped = heartbeat("n1", url=OTHER, state="stopped")
    assert told_of([*[OLD] * SURE, stopped, *[None] * SURE, *[OLD] * SURE], caplog) == 2
    caplog.clear()
    assert told_of([OLD, *[None] * SURE] * 5, caplog) == 0
