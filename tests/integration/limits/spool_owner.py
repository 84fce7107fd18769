"""`python -m tests.integration.limits.spool_owner FOLDER`: takes a spool, forks a child that lives on, and waits.

Prints the child's process id once it has the folder.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from node.limits.spool_owner import owned_spool


def main() -> None:
    """Never ends by itself."""
    with owned_spool(Path(sys.argv[1])):
        child = os.fork()
        if child:
            print(child, flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
