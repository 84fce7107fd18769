"""When balancers may send."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from edge.app import EdgeReadiness
from edge.cluster import Node


async def test_an_edge_is_ready_from_the_moment_at_which_it_listens_until_it_stops() -> None:
    directory: Any = SimpleNamespace(is_fresh=True, list_nodes=lambda: [Node("n1", "http://127.0.0.1:7710")])
    readiness = EdgeReadiness(cast("Any", None), cast("Any", SimpleNamespace(is_connected=True)), directory)
    verdicts = [(await readiness.check())[0]]
    for step in (readiness.start, readiness.stop):
        step()
        verdicts.append((await readiness.check())[0])
    assert verdicts == [False, True, False]
