"""The guardian: a process that outlives `b3os dev` by seconds and sees to it that nothing else does.

It leads the process group in which all children run, and reads a pipe whose other end only `b3os dev` holds. When
that end closes, however `b3os dev` died, the guardian ends the group: SIGTERM, some seconds, SIGKILL, itself last.
Run as a file by itself (`python -I guardian.py FD GRACE_S`), so it must not import anything of ours.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def main() -> None:
    """Wait for the end of the pipe, then of the group."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pipe_fd, grace_s = int(sys.argv[1]), float(sys.argv[2])
    while os.read(pipe_fd, 1):
        pass
    # Only for the group that it leads: started wrongly, it would end its caller's.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGTERM)
        time.sleep(grace_s)
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
