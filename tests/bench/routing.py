"""What a choice among nodes costs an edge, and what it is worth: `python -m tests.bench.routing`.

The first tables are of this machine: the best of several runs. The last is a simulation, the same everywhere
(`tests/routing_simulation.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from edge.affinity import read_affinity
from edge.cluster import Cluster
from edge.routing import Router, order_nodes
from shared.node_hosts import PRIVATE, NodeHosts
from tests.heartbeats import heartbeat
from tests.routing_simulation import always_the_same, in_turn, ours, play

ALLOWED_US = 20
RUNS, ROUNDS = 9, 500


def best_us(work: Callable[[int], object], rounds: int = ROUNDS) -> float:
    """Of one call."""
    found = []
    for _ in range(RUNS):
        begun_s = time.perf_counter()
        for number in range(rounds):
            work(number)
        found.append((time.perf_counter() - begun_s) / rounds * 1e6)
    return min(found)


def cluster_of(count: int) -> Cluster:
    """So many alike, each as busy as it happens."""
    cluster = Cluster({}, NodeHosts(PRIVATE), time.monotonic)
    cluster.hear(heartbeat(f"n{number}", running=number % 7) for number in range(count))
    return cluster


def body_of(text_bytes: int, image_bytes: int = 0) -> bytes:
    """The second turn of a conversation, as SDKs write it."""
    image = [{"type": "image", "source": {"type": "base64", "data": "A" * image_bytes}}] if image_bytes else []
    turns = [
        {"role": "user", "content": [*image, {"type": "text", "text": "word " * (text_bytes // 5)}]},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "And now?"},
    ]
    return json.dumps({"max_tokens": 100, "messages": turns, "model": "b3os/a", "system": "Be brief."}).encode()


def main() -> None:
    """Print both."""
    print("| a choice among | µs |\n| --- | ---: |")
    for count in (2, 10, 100):
        nodes = cluster_of(count).candidates("b3os/a")
        took_us = best_us(lambda number, nodes=nodes: order_nodes(nodes, number * 0x9E3779B97F4A))  # type: ignore[misc]
        verdict = "" if count < 100 else f" (allowed: {ALLOWED_US})"
        print(f"| {count} nodes{verdict} | {took_us:.1f} |")
    print("\n| a look at a body of | µs |\n| --- | ---: |")
    for name, body in (
        ("1 KB", body_of(1_000)),
        ("30 KB", body_of(30_000)),
        ("300 KB", body_of(300_000)),
        ("9 MB, an image in it", body_of(1_000, 9_000_000)),
        ("1 MB of brackets", b'{"messages":[' + b"[" * 1_000_000),
    ):
        took_us = best_us(lambda _, body=body: read_affinity("acme", body), 50)  # type: ignore[misc]
        print(f"| {name} | {took_us:.1f} |")
    route = Router(cluster_of(100))
    small = body_of(1_000)
    print(f"\nboth, for 1 KB and 100 nodes: {best_us(lambda _: route.pick_route('acme', small)):.1f} µs")
    print("\n| nodes | choice | requests | tokens found cached | busiest node, by requests | by time |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for count in (4, 8, 16):
        for name, choose in (("ours", ours), ("always the same node", always_the_same), ("in turn", in_turn())):
            told = play(choose, nodes=count)
            busiest = f"{told.busiest_requests:.2f} | {told.busiest_s:.2f}"
            print(f"| {count} | {name} | {told.requests} | {told.hit_rate:.1%} | {busiest} |")


if __name__ == "__main__":
    main()
