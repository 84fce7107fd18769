"""A process that vLLM spawned ends with the process that spawned it, even when that one is killed.

vLLM's engine core waits for work on a socket and would outlive a killed node, holding its memory.

vLLM calls `die_with_parent` in each of its processes, since pyproject.toml names it among `vllm.general_plugins`. A
call at import of the main module would not do: `spawn` never imports a `__main__.py` again, nor what a command
imported late.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable


def die_with_parent() -> None:
    """In a spawned child: kill this process when its parent is gone. Elsewhere: nothing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_die, args=(parent.join,), name="die-with-parent", daemon=True).start()


def _wait_and_die(join: Callable[[], None]) -> None:
    join()
    os.kill(os.getpid(), signal.SIGKILL)
