"""What one fork may use.

Decides how each bound is made the kernel's business, so that it holds wherever the code of a fork is. Must not know
what is computed.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
from dataclasses import dataclass

from node.forks.kernel import PR_SET_PDEATHSIG, set_process


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a job.

    Attributes:
        cpu_s: processor time.
        wall_s: time by the clock.
        patience_s: time by the clock after which it goes on at low priority.
        memory_bytes: address space beyond that of the zygote and the order.
        most_answer_bytes: of its answer.
    """

    cpu_s: float
    wall_s: float
    patience_s: float
    memory_bytes: int
    most_answer_bytes: int


_FIRST_TO_GO = 1000
"""The kernel's highest: where the machine has no memory left, a job ends before the node does."""


def impose_limits(limits: Limits, zygote_pid: int) -> None:
    """Bound this process, which also goes when the zygote does.

    Raises:
        OSError: a bound can't be set.
    """
    set_process(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != zygote_pid:
        raise ProcessLookupError("the zygote ended first")
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # not everywhere is there one
        file.write(str(_FIRST_TO_GO))
    with open("/proc/self/statm") as file:
        size_bytes = int(file.read().split()[0]) * resource.getpagesize()
    _cap(resource.RLIMIT_AS, size_bytes + limits.memory_bytes)
    _cap(resource.RLIMIT_FSIZE, limits.most_answer_bytes)
    _cap(resource.RLIMIT_CORE, 0)
    _cap(resource.RLIMIT_NOFILE, 0)  # what is open stays; where there is no jail, this keeps files and sockets away
    # For code that has been taken over and blocks the timer's signal: this one can't be. It counts whole seconds.
    _cap(resource.RLIMIT_CPU, math.ceil(2 * limits.cpu_s) + 1)
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)


def _cap(kind: int, most: int) -> None:
    resource.setrlimit(kind, (most, most))
