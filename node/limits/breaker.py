"""Whether it is worth to ask a store that failed: at once no, and it is tried again twice a second.

Decides when it counts as back. Must not know what the store is. Without this, every request of an outage would wait
for the full deadline, and their connections would fill the pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from shared.tasks import end_task

PROBE_EVERY_S = 0.5
_log = logging.getLogger("b3os.breaker")


class Breaker:
    """Open from a failure until a probe comes back."""

    def __init__(self, probe: Callable[[], Awaitable[object]], *, probe_every_s: float = PROBE_EVERY_S) -> None:
        """`probe` raises while the store is away, within a deadline of its own."""
        self._probe = probe
        self._probe_every_s = probe_every_s
        self._closed = asyncio.Event()
        self._closed.set()
        self._probing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether to answer without asking."""
        return not self._closed.is_set()

    def trip(self, cause: str) -> None:
        """A call failed; `cause` is for the log."""
        if self._closed.is_set():
            self._closed.clear()
            self._probing = asyncio.create_task(self._probe_until_back())
            _log.warning("store is away", extra={"facts": {"cause": cause}})

    async def wait_until_closed(self) -> None:
        """Return once the store is believed to answer."""
        await self._closed.wait()

    async def _probe_until_back(self) -> None:
        while True:
            try:
                await self._probe()
            except Exception as error:
                _log.debug("store is still away", extra={"facts": {"cause": type(error).__name__}})
                await asyncio.sleep(self._probe_every_s)
            else:
                break
        self._closed.set()
        _log.warning("store is back")

    async def aclose(self) -> None:
        """Stop probing."""
        if self._probing is not None:
            await end_task(self._probing)
