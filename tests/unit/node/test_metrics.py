"""The counts of a node that no log line and no bill tells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from node.metrics import ForwardCollector


def test_requests_that_were_passed_on_are_told() -> None:
    forwarder: Any = SimpleNamespace(forwarded=3)
    (metric,) = ForwardCollector(forwarder).collect()
    assert [(sample.name, sample.value) for sample in metric.samples] == [("b3os_node_forwarded_total", 3)]
