"""What a node counts, as Prometheus reads it.

Decides names and labels. Every label has a fixed set of values, so that no caller can make more of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from node.images.intake import ImageIntake
from node.images.verdict import Verdict


class ImageCollector(Collector):
    """Fetches by what the guard decided, and the pixels that are held."""

    def __init__(self, images: ImageIntake) -> None:
        self._images = images

    def collect(self) -> Iterator[Metric]:
        """The counts of this moment."""
        counts = self._images.guard.counts
        fetches = CounterMetricFamily("b3os_egress_fetches", "Image URLs by what became of them.", labels=["verdict"])
        for verdict in Verdict:
            fetches.add_metric([verdict.value], counts.by_verdict[verdict])
        yield fetches
        yield CounterMetricFamily(
            "b3os_egress_received_bytes", "Bytes that image hosts sent, wanted or not.", value=counts.received_bytes
        )
        yield GaugeMetricFamily(
            "b3os_images_held_bytes", "Pixels of requests on their way to a prompt.", value=self._images.held_bytes
        )
