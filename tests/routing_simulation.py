"""A cluster in which conversations of many turns come and go, played without waiting: where do their turns find their
prefix cached, and how busy is the busiest node?

The nodes are played; edges choose with the real `Cluster` and `order_nodes`, each by the last heartbeats and by what
it has sent itself since. A turn's prompt is the whole conversation so far; what its node has cached of it costs
nothing.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edge.cluster import Carried, Cluster, Node
from edge.routing import order_nodes
from shared.heartbeat import EVERY_S
from shared.node_hosts import PRIVATE, NodeHosts
from tests.heartbeats import heartbeat

CACHE_TOKENS = 1_200_000
PREFILL_TOKENS_PER_S = 8_000
OUTPUT_TOKENS_PER_S = 40
THINKING_S = 10.0
CONVERSATIONS_PER_S = 0.22
"""For each node: about 20 requests run on it at once."""
Choose = Callable[[Sequence[Node], int], Node]


def ours(nodes: Sequence[Node], key: int) -> Node:
    """As an edge does."""
    return order_nodes(nodes, key)[0]


def always_the_same(nodes: Sequence[Node], key: int) -> Node:
    """Whatever its load: no conversation ever moves."""
    return order_nodes(nodes, key, float("inf"))[0]


def in_turn() -> Choose:
    """Round robin."""
    turns = itertools.count()
    return lambda nodes, key: nodes[next(turns) % len(nodes)]


@dataclass(slots=True)
class Played:
    """A node: its cache, conversation by conversation, and what it has had to do.

    Attributes:
        busy_s: the sum of what all its requests took.
    """

    cached: OrderedDict[int, int] = field(default_factory=OrderedDict)
    held: int = 0
    running: int = 0
    served: int = 0
    busy_s: float = 0.0

    def take(self, conversation: int, prompt_tokens: int) -> int:
        """How much of a prompt was cached; all of it is from now on."""
        known = self.cached.pop(conversation, 0)
        self.held += prompt_tokens - known
        self.cached[conversation] = prompt_tokens
        while self.held > CACHE_TOKENS:
            self.held -= self.cached.popitem(last=False)[1]
        return min(known, prompt_tokens)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Attributes: hit_rate: the part of all prompts' tokens that was cached.

    busiest_requests, busiest_s: of the node with the most of them, as a multiple of the mean.
    """

    requests: int
    hit_rate: float
    busiest_requests: float
    busiest_s: float


@dataclass(slots=True)
class Conversation:
    """A conversation, whose turns are the same wherever they go: it has its own dice.

    Attributes:
        prompt_tokens: of its next turn. left: how many turns follow that.
    """

    number: int
    dice: random.Random
    key: int = field(init=False)
    prompt_tokens: int = field(init=False)
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.dice.getrandbits(60)
        self.prompt_tokens = self.dice.randint(1_000, 12_000)
        self.left = self.dice.randint(1, 15)


def play(choose: Choose, *, nodes: int = 8, edges: int = 2, seconds: float = 1800, seed: int = 1) -> Outcome:
    """Let the time pass."""
    arrivals = random.Random(seed)
    now_s = 0.0
    played = {f"n{number}": Played() for number in range(nodes)}
    clusters = [Cluster({}, NodeHosts(PRIVATE), lambda: now_s) for _ in range(edges)]
    order, numbers = itertools.count(), itertools.count()
    agenda: list[tuple[float, int, Callable[[], None]]] = []
    hits = tokens = 0

    def at(when_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(agenda, (when_s, next(order), what))

    def beat() -> None:
        for cluster in clusters:
            cluster.hear(heartbeat(name, running=node.running) for name, node in played.items())
        at(now_s + EVERY_S, beat)

    def arrive() -> None:
        begin(Conversation(next(numbers), random.Random(arrivals.getrandbits(64))))
        at(now_s + arrivals.expovariate(nodes * CONVERSATIONS_PER_S), arrive)

    def begin(one: Conversation) -> None:
        nonlocal hits, tokens
        chosen, carried = choose(one.dice.choice(clusters).candidates(None), one.key), Carried()
        carried.move(chosen)
        node = played[chosen.id]
        cached = node.take(one.number, one.prompt_tokens)
        hits, tokens = hits + cached, tokens + one.prompt_tokens
        output = one.dice.randint(40, 800)
        takes_s = (one.prompt_tokens - cached) / PREFILL_TOKENS_PER_S + output / OUTPUT_TOKENS_PER_S
        node.running, node.served, node.busy_s = node.running + 1, node.served + 1, node.busy_s + takes_s
        at(now_s + takes_s, lambda: end(one, node, carried, output))

    def end(one: Conversation, node: Played, carried: Carried, output: int) -> None:
        node.running -= 1
        carried.move(None)
        if one.left:
            one.left -= 1
            one.prompt_tokens += output + one.dice.randint(50, 2_000)
            at(now_s + one.dice.expovariate(1 / THINKING_S), lambda: begin(one))

    beat()
    arrive()
    while agenda and now_s < seconds:
        now_s, _, what = heapq.heappop(agenda)
        what()
    served = [node.served for node in played.values()]
    busy_s = [node.busy_s for node in played.values()]
    return Outcome(sum(served), hits / tokens, max(served) * nodes / sum(served), max(busy_s) * nodes / sum(busy_s))
