"""What vLLM's schedulers tell of their load, step by step.

Decides what is kept: the last word of each, since with data parallelism there are several. Must not import vllm.
"""

from __future__ import annotations

from typing import Any

from node.engine.port import EngineLoad


class SchedulerWatch:
    """Takes vLLM's statistics as they come."""

    def __init__(self) -> None:
        self._last: dict[int, EngineLoad] = {}

    def note(self, stats: Any, engine_index: int) -> None:
        """A step of one scheduler; None where it has nothing to tell."""
        if stats is not None:
            waiting = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
            self._last[engine_index] = EngineLoad(stats.num_running_reqs, waiting, stats.kv_cache_usage)

    def load(self) -> EngineLoad | None:
        """All schedulers together, with the fullest of their caches; None before the first step."""
        last = list(self._last.values())
        if not last:
            return None
        running, waiting = sum(each.running for each in last), sum(each.waiting for each in last)
        return EngineLoad(running, waiting, max(each.kv_cache_usage for each in last))
