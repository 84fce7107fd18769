"""The registry in a real Redis: who writes it, who reads it, and what of it is believed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from click.testing import CliRunner
from redis.asyncio import Redis

from edge.admin.nodes import nodes as nodes_command
from edge.cluster import Cluster
from edge.registry import Registry
from node.engine.port import EngineLoad
from node.hearing import APART_S, Hearing, ask_registry
from node.heartbeat import RETRY_S, Pulse
from node.namesake import SURE
from node.peers import Peers
from shared.heartbeat import (
    AT_ONCE,
    EVERY_S,
    LIFETIME_MS,
    NODES,
    Heartbeat,
    HeartbeatParser,
    ModelCard,
    NodeState,
    fetch_heartbeats,
    node_key,
    read_all,
)
from shared.node_hosts import PRIVATE, NodeHosts
from shared.redis import connect_redis
from tests.heartbeats import heartbeat
from tests.redis_server import as_user, free_port


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Engine:
    """What a pulse asks of a supervisor."""

    state: NodeState = "starting"
    told: EngineLoad = field(default_factory=EngineLoad)

    def load(self) -> EngineLoad:
        return self.told


@dataclass
class Scene:
    """A Redis without nodes, by both users."""

    url: str
    edge: Redis
    node: Redis
    operator: Redis

    async def forget(self) -> None:
        """All nodes."""
        async for name in self.operator.scan_iter("b3os:node:*"):
            await self.operator.delete(name)
        await self.operator.delete(NODES)

    async def calls(self, *commands: str) -> int:
        """How often clients and scripts called these, or all but the one that tells it."""
        stats = await self.operator.info("commandstats")
        names = [f"cmdstat_{name}" for name in commands] or [name for name in stats if name != "cmdstat_info"]
        return sum(stats[name]["calls"] for name in names if name in stats)

    def pulse(
        self,
        name: str,
        engine: Engine | None = None,
        redis: Redis | None = None,
        clock: Callable[[], float] = time.monotonic,
        url: str = "http://127.0.0.1:7710",
    ) -> Pulse:
        card = ModelCard(id=f"b3os/{name}", display_name=name, created_s=1, context_tokens=100)
        facts = (redis or self.node, name, url, lambda: card)
        return Pulse(*facts, cast("Any", engine or Engine()), clock)

    def hearing(self, name: str, redis: Redis | None = None) -> tuple[Hearing, Peers]:
        peers = Peers(name, NodeHosts(PRIVATE), time.monotonic)
        return Hearing(redis or self.node, peers, lambda: 0.5), peers

    async def crowd(self, count: int) -> list[str]:
        """So many nodes that beat just now."""
        told = [heartbeat(f"m{number:04}", model=f"b3os/{number % 3}") for number in range(count)]
        async with self.operator.pipeline(transaction=False) as writes:
            for each in told:
                writes.set(node_key(each.id), each.model_dump_json(), px=600_000)
            writes.sadd(NODES, *(each.id for each in told))
            await writes.execute()
        return [each.id for each in told]

    def registry(self, clock: Any = time.monotonic) -> tuple[Registry, Cluster]:
        cluster = Cluster({}, NodeHosts(PRIVATE), clock)
        return Registry(self.edge, cluster, clock), cluster


def bound() -> asyncio.Event:
    """Of a node that can be reached."""
    event = asyncio.Event()
    event.set()
    return event


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Levels and messages."""
    return [(record.levelname, record.msg) for record in caplog.records]


@pytest.fixture
async def scene(redis_url: str) -> AsyncIterator[Scene]:
    users = [connect_redis(as_user(user, redis_url)) for user in ("edge", "node", "operator")]
    found = Scene(redis_url, *users)
    await found.forget()
    yield found
    await found.forget()
    for user in users:
        await user.aclose()


async def test_a_heartbeat_says_it_all_and_expires_by_itself(scene: Scene) -> None:
    engine = Engine("ready", EngineLoad(3, 2, 0.5))
    pulse = scene.pulse("n1", engine)
    assert await pulse.beat()
    assert 0 < await scene.operator.pttl(node_key("n1")) <= LIFETIME_MS
    (told,) = await fetch_heartbeats(scene.edge)
    assert (told.id, told.url, told.state) == ("n1", "http://127.0.0.1:7710", "ready")
    assert (told.running, told.waiting, told.cache_usage) == (3, 2, 0.5)
    assert told.models[0].id == "b3os/n1"
    await pulse.beat()
    (next_told,) = await fetch_heartbeats(scene.edge)
    assert (next_told.boot, next_told.beat) == (told.boot, told.beat + 1)


async def test_nodes_hear_of_each_other_and_forget_who_is_gone(scene: Scene) -> None:
    for name in ("n1", "n2"):
        await scene.pulse(name).beat()
    hearing, seen = scene.hearing("n1")
    assert await hearing.listen()
    assert seen.ids() == ["n2"]
    await scene.operator.delete(node_key("n2"))
    assert await hearing.listen()
    assert seen.ids() == []
    assert await scene.operator.smembers(NODES) == {"n1"}


async def test_what_a_beat_costs_redis_does_not_depend_on_how_many_there_are(scene: Scene) -> None:
    pulse = scene.pulse("n1")
    costs = []
    for others in (0, 500):
        if others:
            await scene.crowd(others)
        await pulse.beat()
        before = await scene.calls()
        await pulse.beat()
        costs.append(await scene.calls() - before)
    assert costs[0] == costs[1]


async def test_a_thousand_nodes_are_heard_in_pieces(scene: Scene) -> None:
    ids = await scene.crowd(1000)
    await scene.operator.sadd(NODES, "gone")
    registry, cluster = scene.registry()
    assert await registry.look()
    assert [node.id for node in cluster.list_nodes()] == ids
    assert await scene.operator.sismember(NODES, "gone")  # an edge changes nothing
    hearing, peers = scene.hearing("n1")
    before = await scene.calls("mget")
    assert await hearing.listen()
    assert await scene.calls("mget") - before == -(-1001 // AT_ONCE)
    assert peers.ids() == ids
    assert not await scene.operator.sismember(NODES, "gone")


async def test_the_more_nodes_the_less_often_each_hears(scene: Scene) -> None:
    hearing, _ = scene.hearing("n1")
    assert hearing.pause_s() == EVERY_S
    await scene.crowd(10)
    await hearing.listen()
    assert hearing.pause_s() == EVERY_S
    await scene.crowd(1000)
    await hearing.listen()
    assert hearing.pause_s() == pytest.approx(1000 * APART_S)


async def test_a_node_asks_for_those_alone_that_a_token_is_for(scene: Scene) -> None:
    await scene.crowd(20)
    found = await ask_registry(scene.node, ["m0001", "m0007", "nobody"])
    assert [each.id for each in found] == ["m0001", "m0007"]
    nowhere = connect_redis(f"redis://127.0.0.1:{free_port()}/0")
    assert await ask_registry(nowhere, ["m0001"]) == ()
    await nowhere.aclose()


def test_what_was_read_before_is_not_parsed_again() -> None:
    first, second = heartbeat("n1"), heartbeat("n2")
    texts = {each.id: each.model_dump_json() for each in (first, second)}
    parser = HeartbeatParser()
    before = parser.parse(texts)
    newer = heartbeat("n2")
    after = parser.parse({"n1": "".join(texts["n1"]), "n2": newer.model_dump_json()})
    assert after[0] is before[0]
    assert (before[1], after[1]) == (second, newer)
    assert parser.parse({}) == []


async def test_a_node_leaves_the_registry_and_no_other_with_it(scene: Scene) -> None:
    old, new = scene.pulse("n1"), scene.pulse("n1")
    async with old.beating(bound()):
        while not await scene.operator.exists(node_key("n1")):
            await asyncio.sleep(0.01)
        await new.beat()
    assert (await fetch_heartbeats(scene.edge))[0].boot == new.build().boot
    async with new.beating(bound()):
        pass
    assert await fetch_heartbeats(scene.edge) == []
    assert await scene.operator.exists(NODES) == 0


async def test_an_edge_that_never_saw_it_drain_knows_that_a_node_has_stopped(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    registry, cluster = scene.registry()
    newcomer, of_newcomer = scene.registry()
    caplog.set_level("INFO")
    async with asyncio.timeout(30), scene.pulse("n1").beating(bound()):
        while not cluster.list_nodes():
            await registry.look()
    assert 0 < await scene.operator.pttl(node_key("n1")) <= LIFETIME_MS
    await registry.look()
    assert (cluster.list_nodes(), said(caplog)) == ([], [("INFO", "node stopped")])
    await newcomer.look()
    assert of_newcomer.known_ids() == []
    assert await ask_registry(scene.node, ["n1"]) != []
    peers = Peers("n2", NodeHosts(PRIVATE), time.monotonic, lambda ids: ask_registry(scene.node, ids))
    assert await peers.find("b3os/n1", {"n1", "n2"}) is None


async def test_whoever_can_not_be_reached_says_nothing_not_even_that_it_stops(scene: Scene) -> None:
    await scene.pulse("n1").beat()
    told = await fetch_heartbeats(scene.edge)
    async with scene.pulse("n1").beating(asyncio.Event()):
        await asyncio.sleep(0.01)
    assert await fetch_heartbeats(scene.edge) == told


async def test_a_full_redis_hears_that_a_node_has_stopped(scene: Scene) -> None:
    async with scene.pulse("n1").beating(bound()):
        while not await scene.operator.exists(node_key("n1")):
            await asyncio.sleep(0.01)
        await scene.operator.config_set("maxmemory", "1")
    try:
        assert await fetch_heartbeats(scene.edge) == []
        assert [each.state for each in await ask_registry(scene.node, ["n1"])] == ["stopped"]
    finally:
        await scene.operator.config_set("maxmemory", "0")


async def test_bytes_that_are_no_text_under_its_name_are_nobody(scene: Scene) -> None:
    await scene.operator.set(node_key("n1"), b"\xff")
    assert await ask_registry(scene.node, ["n1"]) == ()
    await scene.pulse("n1").beat()
    assert [each.id for each in await ask_registry(scene.node, ["n1"])] == ["n1"]


async def test_a_node_that_is_back_at_once_is_there_at_once(scene: Scene) -> None:
    registry, cluster = scene.registry()
    before = scene.pulse("n1")
    await before.beat()
    async with before.beating(bound()):
        pass
    await scene.pulse("n1", Engine("ready")).beat()
    await registry.look()
    assert [(node.id, node.state) for node in cluster.list_nodes()] == [("n1", "ready")]


async def test_a_node_hears_who_told_under_its_id_since(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    first, second = scene.pulse("n1"), scene.pulse("n1", url="http://127.0.0.2:7710")
    await first.beat()
    for _ in range(SURE):
        await second.beat()
        await first.beat()
    told = [(line.msg, line.facts) for line in caplog.records]  # type: ignore[attr-defined]
    own, other = "http://127.0.0.1:7710", "http://127.0.0.2:7710"
    urls = ((other, own), (own, other))  # the second one found what the first had told first
    assert told == [
        ("another node has this id", {"node": "n1", "own_url": each, "other_url": its}) for each, its in urls
    ]


async def test_what_is_no_heartbeat_under_its_name_keeps_no_node_from_telling(scene: Scene) -> None:
    await scene.operator.sadd(node_key("n1"), "x")
    assert await scene.pulse("n1").beat()
    pulse = scene.pulse("n1")
    async with asyncio.timeout(30), pulse.beating(bound()):
        while not [each for each in await ask_registry(scene.node, ["n1"]) if each.boot == pulse.boot]:
            await asyncio.sleep(0.01)
        await scene.operator.delete(node_key("n1"))
        await scene.operator.sadd(node_key("n1"), "x")
    assert [each.state for each in await ask_registry(scene.node, ["n1"])] == ["stopped"]


async def test_a_change_of_state_is_told_at_once(scene: Scene) -> None:
    engine = Engine("starting")
    pulse = scene.pulse("n1", engine, clock=Clock())  # whose time stands still: no heartbeat is due but the first

    async def told() -> list[Heartbeat]:
        return await fetch_heartbeats(scene.edge)

    async with pulse.beating(bound()), asyncio.timeout(30):
        for state, beats in (("starting", 1), ("ready", 2), ("draining", 3)):
            engine.state = cast("NodeState", state)
            while not (found := await told()) or found[0].state != state:
                await asyncio.sleep(0.01)
            assert found[0].beat == beats


async def test_a_node_without_redis_goes_on_and_says_so_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = connect_redis(f"redis://127.0.0.1:{free_port()}/0")
    pulse = scene.pulse("n1", redis=nowhere)
    hearing, peers = scene.hearing("n1", redis=nowhere)
    peers.hear([heartbeat("n2", model="b3os/b")])
    for _ in range(5):
        assert not await pulse.beat()
        assert not await hearing.listen()
    assert (pulse.missed, hearing.missed) == (5, 5)
    assert [record.message for record in caplog.records] == [
        "the registry does not hear",
        "the registry tells nothing",
    ]
    assert peers.ids() == ["n2"]
    async with pulse.beating(bound()):
        pass
    await nowhere.aclose()


async def test_a_redis_that_is_away_is_not_asked_all_the_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    class Away:
        async def eval(self, *_: object) -> None:
            nonlocal asked
            asked += 1
            raise ConnectionError

    monkeypatch.setattr("node.heartbeat.LOOK_EVERY_S", 0)
    clock = Clock()
    pulse = scene.pulse("n1", redis=cast("Any", Away()), clock=clock)
    async with pulse.beating(bound()):
        for due_s, wanted in ((0.0, 1), (RETRY_S - 0.01, 1), (RETRY_S, 2), (2 * RETRY_S, 3)):
            clock.now_s = due_s
            for _ in range(100):
                await asyncio.sleep(0)
            assert asked == wanted


async def test_a_state_is_told_once_redis_has_heard_it_or_could_not(scene: Scene) -> None:
    for redis, hears in ((scene.node, True), (connect_redis(f"redis://127.0.0.1:{free_port()}/0"), False)):
        engine = Engine()
        pulse = scene.pulse("n1", engine, redis)
        assert [pulse.told] == [None]
        async with pulse.beating(bound()):
            for engine.state in ("starting", "ready", "draining"):
                async with asyncio.timeout(60):
                    while pulse.told != engine.state:
                        await asyncio.sleep(0.001)
                states = [each.state for each in await fetch_heartbeats(scene.edge)]
                assert states == ([engine.state] if hears else [])
        await scene.forget()


async def test_an_edge_knows_who_beats(scene: Scene) -> None:
    registry, cluster = scene.registry()
    assert await registry.look()
    assert (cluster.list_nodes(), cluster.is_fresh) == ([], True)
    await scene.pulse("n1").beat()
    await registry.look()
    assert [node.id for node in cluster.list_nodes()] == ["n1"]


async def test_all_who_would_be_turned_away_at_once_share_one_reading(scene: Scene) -> None:
    registry, cluster = scene.registry()
    await scene.pulse("n1").beat()
    await registry.look()
    await scene.pulse("n2").beat()
    before = await scene.calls("mget")
    await asyncio.gather(*(registry.look_again() for _ in range(500)))
    assert [node.id for node in cluster.list_nodes()] == ["n1", "n2"]
    assert await scene.calls("mget") == before + 1


async def test_who_asks_anew_does_not_content_himself_with_a_reading_under_way(
    scene: Scene,
) -> None:
    registry, cluster = scene.registry()
    await scene.pulse("n1").beat()
    await registry.look()
    reading = asyncio.create_task(registry.look())
    await asyncio.sleep(0)
    await scene.pulse("n2").beat()
    await registry.look_again()
    assert [node.id for node in cluster.list_nodes()] == ["n1", "n2"]
    assert await reading


async def test_whoever_leaves_while_the_registry_is_read_ends_that_for_nobody(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, cluster = scene.registry()
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def read_when_told(redis: Redis, known: Iterable[str]) -> dict[str, str]:
        begun.set()
        await goes_on.wait()
        return await read_all(redis, known)

    await registry.look()
    monkeypatch.setattr("edge.registry.read_all", read_when_told)
    asking = [asyncio.create_task(registry.look_again()) for _ in range(10)]
    await begun.wait()
    asking[0].cancel()
    await asyncio.wait({asking[0]})
    await scene.pulse("n1").beat()
    goes_on.set()
    await asyncio.gather(*asking[1:])
    assert [node.id for node in cluster.list_nodes()] == ["n1"]


async def test_nobody_waits_for_a_redis_that_is_away_to_hear_of_nodes_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, _ = scene.registry()
    registry._redis = connect_redis(f"redis://127.0.0.1:{free_port()}/0")
    assert not await registry.look()
    monkeypatch.setattr(registry, "_read", None)
    async with registry._turn, asyncio.timeout(60):  # it is frozen, and the registry waits for it
        await registry.look_again()


async def test_what_is_unreadable_keeps_nobody_from_the_others(scene: Scene) -> None:
    registry, cluster = scene.registry()
    await scene.pulse("n1").beat()
    for name, text in (
        ("bad", "not json"),
        ("empty", "{}"),
        ("evil", heartbeat("evil", url="http://203.0.113.1").model_dump_json()),
        ("odd", heartbeat("odd").model_dump_json().replace('"odd"', '"../odd"')),
        ("new", heartbeat("new").model_dump_json()[:-1] + ',"more":1}'),
    ):
        await scene.operator.set(node_key(name), text)
        await scene.operator.sadd(NODES, name)
    await scene.operator.sadd(NODES, "gone")
    await registry.look()
    assert [node.id for node in cluster.list_nodes()] == ["n1", "new"]


async def test_nodes_outlive_a_redis_that_is_away_and_one_that_has_forgotten_them(scene: Scene) -> None:
    clock = Clock()
    registry, cluster = scene.registry(clock)
    await scene.pulse("n1").beat()
    for clock.now_s in (0.0, 10.0):
        await registry.look()
    registry._redis = connect_redis(f"redis://127.0.0.1:{free_port()}/0")
    for clock.now_s in (11.0, 100.0):
        assert not await registry.look()
    assert (len(cluster.list_nodes()), cluster.is_fresh, registry.failures) == (1, False, 2)
    registry._redis = scene.edge
    await scene.forget()
    for clock.now_s in (101.0, 106.9):
        await registry.look()
        assert (len(cluster.list_nodes()), cluster.is_fresh) == (1, True)
    clock.now_s = 107.0
    await registry.look()
    assert cluster.list_nodes() == []


async def test_an_edge_may_not_write_what_nodes_tell(scene: Scene) -> None:
    for command in (
        ("SET", node_key("n1"), "x"),
        ("DEL", node_key("n1")),
        ("SADD", NODES, "x"),
        ("SREM", NODES, "x"),
    ):
        refused = await cast("Any", scene.operator).execute_command("ACL", "DRYRUN", "edge", *command)
        assert "no permissions" in str(refused)


async def test_operators_see_the_cluster(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("B3OS_REDIS_URL", as_user("edge", scene.url))
    empty = await asyncio.to_thread(CliRunner().invoke, nodes_command, [])
    assert (empty.exit_code, empty.output.strip()) == (0, "no node tells of itself")
    await scene.pulse("n1", Engine("ready", EngineLoad(3, 2, 0.5))).beat()
    await scene.pulse("n2", Engine("draining")).beat()
    table = await asyncio.to_thread(CliRunner().invoke, nodes_command, [])
    assert [line.split() for line in table.output.splitlines()] == [
        ["id", "state", "running", "waiting", "cache", "models", "url"],
        ["n1", "ready", "3", "2", "50%", "b3os/n1", "http://127.0.0.1:7710"],
        ["n2", "draining", "0", "0", "-", "b3os/n2", "http://127.0.0.1:7710"],
    ]
    as_json = await asyncio.to_thread(CliRunner().invoke, nodes_command, ["--json"])
    assert [each["id"] for each in json.loads(as_json.output)] == ["n1", "n2"]
