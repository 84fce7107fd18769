"""Which node comes first, and who may accept the token."""

from __future__ import annotations

import pytest

from edge.routing import Router, StaticDirectory
from shared.errors import NODE_UNAVAILABLE, ApiError


def test_one_node_is_its_own_audience() -> None:
    route = Router(StaticDirectory({"n1": "http://a"})).pick_route()
    assert route.audience == ["n1"]


def test_nodes_take_turns_with_one_fallback_each() -> None:
    router = Router(StaticDirectory({"n1": "http://a", "n2": "http://b", "n3": "http://c"}))
    assert [router.pick_route().audience for _ in range(4)] == [
        ["n1", "n2"],
        ["n2", "n3"],
        ["n3", "n1"],
        ["n1", "n2"],
    ]


def test_no_node_is_a_refusal() -> None:
    with pytest.raises(ApiError) as raised:
        Router(StaticDirectory({})).pick_route()
    assert raised.value.condition is NODE_UNAVAILABLE
