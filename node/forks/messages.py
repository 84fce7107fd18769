"""What the node and a zygote say to each other: datagrams of a few bytes, each with at most one memory file.

Decides their form. A datagram comes whole or not at all, so nobody waits for the rest of one, and megabytes never
pass through the socket: they lie in the memory file.
"""

from __future__ import annotations

import enum
import struct

JOB = struct.Struct("<QB")
"""Number of the job, `Request`. `WORK` brings the order's memory file."""
REPLY = struct.Struct("<QBB")
"""Number of the job, `Outcome`, the signal that ended its fork or 0. `DONE` brings the answer's memory file."""
READY = struct.Struct("<B")
"""Once, first: whether forks are jailed."""
MOST_BYTES = 64


class Request(enum.IntEnum):
    """What the node wants."""

    WORK = 1
    KILL = 2


class Outcome(enum.IntEnum):
    """What became of a job."""

    DONE = 1
    SLOW = 2
    """It used up its processor time."""
    LATE = 3
    """Time ran out by the clock, but not its processor time: the machine was busy, or it waited for something."""
    LARGE = 4
    """It ran out of memory, or its answer is too long."""
    DIED = 5
    """It failed or crashed, or did what the jail doesn't allow."""
    UNABLE = 6
    """It could not be forked."""
