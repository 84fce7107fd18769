"""Have a process tell of itself: the collectors of its operator port, and who hears its log.

Decides what every process counts. Must not know what it serves.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from prometheus_client.registry import Collector

from shared.loop_lag import LoopLag
from shared.watched import WatchedLines


@contextlib.asynccontextmanager
async def observed(listeners: Sequence[logging.Handler] = ()) -> AsyncIterator[list[Collector]]:
    """Collectors for `build_operator_app`, which count while the body runs; `listeners` hear our log besides."""
    lag, lines = LoopLag(), WatchedLines()
    logger = logging.getLogger("b3os")
    handlers = (lines, *listeners)
    for handler in handlers:
        logger.addHandler(handler)
    try:
        async with lag.watching():
            yield [lag, lines]
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
