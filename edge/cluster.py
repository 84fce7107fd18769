"""The nodes as this edge knows them: what they told last, and what it has seen itself since.

Decides who is there, who may be asked for a model, and how busy each is. Must not know where heartbeats come from,
how a node is reached, nor what is asked.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from edge.affinity import KEY_BITS
from edge.breaker import Breaker
from shared.heartbeat import Heartbeat, NodeState
from shared.node_hosts import NodeHosts

NOT_STARTED_S = 1.0
"""How long a node is left alone that says that it takes nothing: its next heartbeat will tell more."""
_log = logging.getLogger("b3os.edge.cluster")


class Node:
    """One node, under the id that it verifies as its token's audience.

    Attributes:
        seed: spreads keys over nodes. models: None while it has told of none.
        is_there: whether its heartbeat lives; one that never had any may live all the same.
        in_flight: requests of this edge that it has. load: all that it has, as far as this edge knows.
    """

    __slots__ = (
        "_heartbeat",
        "_in_flight_then",
        "_on_loss",
        "breaker",
        "id",
        "in_flight",
        "is_there",
        "load",
        "models",
        "seed",
        "state",
        "url",
    )

    def __init__(self, node_id: str, url: str) -> None:
        self.id, self.url = node_id, url
        self.seed = int.from_bytes(hashlib.blake2b(node_id.encode(), digest_size=8).digest()) >> (64 - KEY_BITS)
        self.models: frozenset[str] | None = None
        self.state: NodeState = "ready"
        self.is_there = True
        self.breaker = Breaker()
        self.in_flight = self.load = self._in_flight_then = 0
        self._heartbeat: Heartbeat | None = None
        self._on_loss: set[Callable[[], object]] = set()

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The last one."""
        return self._heartbeat

    @property
    def boot(self) -> str:
        """Which process of its id it is; empty while it has told of none."""
        return "" if self._heartbeat is None else self._heartbeat.boot

    def hear(self, heartbeat: Heartbeat) -> None:
        """Take what it tells now."""
        self.is_there = True
        if heartbeat is self._heartbeat:  # read again before it told anew: most of a thousand, each time
            return
        before, self._heartbeat = self._heartbeat, heartbeat
        self.models, self.state = frozenset(card.id for card in heartbeat.models), heartbeat.state
        if before is not None and before.boot != heartbeat.boot:
            self.breaker.reset()
        if before is None or (before.boot, before.beat) != (heartbeat.boot, heartbeat.beat):
            self._in_flight_then = self.in_flight
        self._weigh()

    def lose(self) -> None:
        """Its heartbeat is gone: whoever waits for it to answer waits no longer."""
        self.is_there = False
        for tell in list(self._on_loss):
            tell()

    def add(self, change: int) -> None:
        """A request of this edge came or went."""
        self.in_flight += change
        self._weigh()

    def _weigh(self) -> None:
        """Between heartbeats, what this edge has sent and ended since is all that is known."""
        told = self._heartbeat
        since = self.in_flight - self._in_flight_then
        self.load = max(self.in_flight, 0 if told is None else told.running + told.waiting + since)

    @contextmanager
    def watched(self, tell: Callable[[], object]) -> Iterator[None]:
        """Call `tell` if the node is lost while the body runs."""
        self._on_loss.add(tell)
        try:
            yield
        finally:
            self._on_loss.discard(tell)


class Carried:
    """One request on its way, counted for whoever has it."""

    __slots__ = ("_node",)

    def __init__(self) -> None:
        self._node: Node | None = None

    @property
    def node(self) -> Node | None:
        """Who has it."""
        return self._node

    def move(self, node: Node | None) -> None:
        """Another node has it now, or none any more."""
        if self._node is not None:
            self._node.add(-1)
        self._node = node
        if node is not None:
            node.add(1)

    def __enter__(self) -> Carried:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.move(None)


class Cluster:
    """All nodes.

    Args:
        fixed: ids and URLs of the settings. With any, there are no others, and heartbeats change no URL.
        hosts: where nodes may be that are known from heartbeats alone.

    Attributes:
        is_fresh: whether Redis told when it was asked last; else what is known here grows old.
        there: how many nodes are there. breakers_opened: how often one of any node did, for metrics.
    """

    def __init__(self, fixed: Mapping[str, str], hosts: NodeHosts, clock: Callable[[], float]) -> None:
        self._nodes = {node_id: Node(node_id, url) for node_id, url in sorted(fixed.items())}
        self._is_fixed = bool(fixed)
        self._hosts = hosts
        self._clock = clock
        self._refused: set[str] = set()
        self._answering: dict[str, tuple[Node, ...]] = {}
        self._ready: tuple[Node, ...] = ()
        self._avoided: set[Node] = set()
        self.is_fresh = False
        self.there = 0
        self.breakers_opened = 0
        self._sort()

    def list_nodes(self) -> Sequence[Node]:
        """Those that are there. Metrics ask from another thread, so what is gone through is a copy."""
        return [node for node in list(self._nodes.values()) if node.is_there]

    def known_ids(self) -> list[str]:
        """Whose heartbeats to ask for."""
        return list(self._nodes)

    def hear(self, heartbeats: Iterable[Heartbeat], *, is_whole: bool = True) -> None:
        """Take what was read.

        Args:
            is_whole: whether those that are missing are lost. They are not while Redis has just come back: it may
                have forgotten them, and they need a moment to tell again. Who says that it stopped is gone at once.
        """
        self.is_fresh = True
        read = {each.id: each for each in heartbeats}
        believed = {node_id: each for node_id, each in read.items() if self._is_believed(each)}
        told = {node_id: each for node_id, each in believed.items() if each.state != "stopped"}
        self._refused &= read.keys()
        for node_id, heartbeat in told.items():
            node = self._nodes.get(node_id)
            if node is None:
                node = self._nodes[node_id] = Node(node_id, heartbeat.url)
            if not self._is_fixed:
                node.url = heartbeat.url
            node.hear(heartbeat)
        for node in [each for each in self._nodes.values() if each.id not in told]:
            has_stopped = node.id in believed
            if has_stopped or is_whole:
                self._lose(node, has_stopped=has_stopped)
        self._sort()

    def _lose(self, node: Node, *, has_stopped: bool) -> None:
        if node.heartbeat is None:
            return  # of the settings, and it never told anything: it may have no Redis
        if not self._is_fixed and not node.in_flight:
            del self._nodes[node.id]
        if node.is_there:
            level, said = (logging.INFO, "node stopped") if has_stopped else (logging.WARNING, "node left")
            _log.log(level, said, extra={"facts": {"node": node.id, "in_flight": node.in_flight}})
            node.lose()

    def _is_believed(self, heartbeat: Heartbeat) -> bool:
        known = self._nodes.get(heartbeat.id)
        if self._is_fixed:
            return known is not None
        was_believed = known is not None and known.heartbeat is not None and known.heartbeat.url == heartbeat.url
        if was_believed or self._hosts.allows(heartbeat.url):  # to look at a thousand addresses again takes 9 ms
            self._refused.discard(heartbeat.id)
            return True
        if heartbeat.id not in self._refused:
            self._refused.add(heartbeat.id)
            _log.error("a node's address is not allowed", extra={"facts": {"node": heartbeat.id}})
        return False

    def _sort(self) -> None:
        """By model, once for all requests until the next heartbeats."""
        there = [node for node in self._nodes.values() if node.is_there]
        self.there = len(there)
        self._ready = tuple(node for node in there if node.state == "ready") or tuple(there)
        self._answering = _by_model(there)

    @property
    def models(self) -> frozenset[str]:
        """All that is served."""
        return frozenset(self._answering)

    def candidates(self, model: str | None) -> Sequence[Node]:
        """Who may be asked: those that serve the model, and anybody where nobody does or none is known.

        Nodes that are ready and didn't fail just now; where there is none of them, those that will tell why not.
        """
        found = self._able(model)
        if not self._avoided:
            return found
        now_s = self._clock()
        self._avoided = {node for node in self._avoided if not node.breaker.lets_through(now_s)}
        return [node for node in found if node not in self._avoided] or found

    def last_resorts(self, model: str | None) -> Sequence[Node]:
        """Who is left alone or not ready, as far as is known here, and could take over all the same: that is a second
        old, and whoever takes nothing says so at once."""
        there = [node for node in self._nodes.values() if node.is_there]
        if model is not None:
            there = [node for node in there if node.models is None or model in node.models]
        return sorted(there, key=lambda node: node.state == "draining")

    def _able(self, model: str | None) -> Sequence[Node]:
        return self._ready if model is None else self._answering.get(model, self._ready)

    def one_of_each_model(self, besides: Iterable[Node]) -> list[Node]:
        """The least busy node of each model that none of these serves."""
        covered = {model for node in besides for model in node.models or ()}
        found: list[Node] = []
        for model in sorted(self._answering.keys() - covered):
            node = min(self._answering[model], key=lambda each: each.load)
            if node not in found:
                found.append(node)
        return found

    def note_begin(self, node: Node) -> float | None:
        """A request is on its way to it. What comes back is for `note_abandoned`."""
        if not node.breaker.failures:
            return None
        until_s = node.breaker.begin(self._clock())
        self._see(node)
        return until_s

    def note_abandoned(self, node: Node, until_s: float | None) -> None:
        """Whoever asked has left before it answered."""
        node.breaker.abandon(until_s)

    def note_success(self, node: Node) -> None:
        """It answered."""
        node.breaker.succeed()

    def note_failure(self, node: Node) -> None:
        """It was not there, or broke off before it answered."""
        opened = node.breaker.opened
        node.breaker.fail(self._clock())
        self.breakers_opened += node.breaker.opened - opened
        self._see(node)

    def note_not_started(self, node: Node) -> None:
        """It takes no requests just now."""
        node.breaker.avoid(self._clock(), NOT_STARTED_S)
        self._see(node)

    def _see(self, node: Node) -> None:
        if not node.breaker.lets_through(self._clock()):
            self._avoided.add(node)


def _by_model(there: Sequence[Node]) -> dict[str, tuple[Node, ...]]:
    """The nodes of each model: ready ones, else those that may be soon. One that tells nothing may serve any."""
    silent = [node for node in there if node.models is None]
    found: dict[str, list[Node]] = {}
    for node in there:
        for model in node.models or ():
            found.setdefault(model, [*silent]).append(node)
    return {
        model: tuple([node for node in having if node.state == "ready"] or having) for model, having in found.items()
    }
