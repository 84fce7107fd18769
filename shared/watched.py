"""Counts the log lines that operators watch, so that an alarm needs no search through logs.

Decides which lines these are: those of docs/operations.md, "What to watch", and no others, since a line's text is a
label. Must not know who writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from prometheus_client import Counter, Metric
from prometheus_client.registry import Collector

MESSAGES = (
    "redis may lose what it acknowledged",
    "store is away",
    "store is back",
    "Redis refused",
    "a bill failed",
    "the spool can't be written; the bill waits in memory",
    "the spool can't be replayed",
    "a spooled bill is unreadable and was set aside",
    "a spooled bill is too old and was set aside",
    "an abandoned request was settled",
    "a request was settled before",
    "a reservation is unreadable",
    "a sweep failed",
    "a renewal failed",
    "a refusal can't be logged",
    "the engine died",
    "the engine did not start",
    "the engine did not shut down",
    "the engine's start can't be ended; restart the node",
    "another node has this id",
    "node token refused",
    "subscription lost",
    "lookup failed",
    "store does not answer",
    "node failed",
    "node left",
    "node takes nothing now",
    "a node had this request already",
    "a node's address is not allowed",
    "a heartbeat is unreadable",
    "registry is away",
    "registry is back",
    "the registry does not hear",
    "the registry hears again",
    "the registry tells nothing",
    "peer failed",
    "peer broke off",
    "node broke off",
    "node broke off within a stream",
    "a node rejected the edge's token: are its public keys, its id and its clock right?",
    "the new certificate can't be used; the old one stays",
    "unhandled",
)


class WatchedLines(logging.Handler, Collector):
    """A handler of the logger `b3os` that writes nothing."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines = Counter("b3os_log_lines", "Log lines that operators watch.", ["message"], registry=None)
        for message in MESSAGES:  # a series that begins with its first event shows no rise
            self._lines.labels(message)

    def emit(self, record: logging.LogRecord) -> None:
        """Count it, if it is one of them."""
        if record.msg in MESSAGES:
            self._lines.labels(record.msg).inc()

    def collect(self) -> Iterator[Metric]:
        """The counts of this moment."""
        yield from self._lines.collect()
