"""What is kept of the words of vLLM's schedulers."""

from __future__ import annotations

from types import SimpleNamespace

from node.engine.port import EngineLoad
from node.engine.scheduler_watch import SchedulerWatch


def told(running: int, waiting: int, deferred: int, usage: float) -> SimpleNamespace:
    return SimpleNamespace(
        num_running_reqs=running,
        num_waiting_reqs=waiting,
        num_skipped_waiting_reqs=deferred,
        kv_cache_usage=usage,
    )


def test_nothing_is_told_before_the_first_step() -> None:
    watch = SchedulerWatch()
    watch.note(None, 0)
    assert watch.load() is None


def test_the_last_word_of_each_scheduler_counts() -> None:
    watch = SchedulerWatch()
    watch.note(told(9, 9, 9, 0.9), 0)
    watch.note(told(2, 1, 1, 0.25), 0)
    watch.note(told(3, 0, 0, 0.5), 1)
    watch.note(None, 1)
    assert watch.load() == EngineLoad(running=5, waiting=2, kv_cache_usage=0.5)
