"""A process that multiprocessing spawned ends with the process that spawned it, even when that one is killed.

vLLM's engine core waits for work on a socket and would outlive a killed node, holding its GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

SPAWNED = "__mp_main__"
"""The name under which `spawn` imports the main module again in every child."""


def die_with_parent() -> None:
    """Kill this process, a spawned child, once its parent is gone."""
    threading.Thread(target=_wait_and_die, name="die-with-parent", daemon=True).start()


def _wait_and_die() -> None:
    while (parent := multiprocessing.parent_process()) is None:
        time.sleep(0.05)  # multiprocessing sets it after the main module was imported
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
