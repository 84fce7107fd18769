"""Bills that Redis did not take, on disk until it does: one file each, whole or absent, and it outlives a crash.

Decides how a bill is kept. Must not know when it is tried again, nor who else would have the folder. Booking is
idempotent, so a file that is dropped too late is harmless.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from node.limits.facts import decode_settlement, encode_settlement
from node.limits.limiter import Settlement

_KEPT, _PARTIAL, _ASIDE = ".bill", ".partial", ".aside"


class Spool:
    """A folder of bills. Its methods block: call them from a thread."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, readable by its owner only.

        Raises:
            OSError: it can't be made.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        for partial in folder.glob(f"*{_PARTIAL}"):  # of a write that a crash cut; it was never promised
            partial.unlink(missing_ok=True)

    def put(self, settlement: Settlement) -> None:
        """On disk when this returns, its name in the folder included.

        Raises:
            OSError: the disk is full, or worse.
        """
        name = settlement.hold.subject.request_id
        partial = self._folder / f"{name}-{secrets.token_hex(4)}{_PARTIAL}"
        try:
            with partial.open("xb") as file:
                file.write(encode_settlement(settlement))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._folder / f"{name}{_KEPT}")
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        self._sync_folder()

    def names(self) -> list[str]:
        """What waits, oldest request first."""
        return sorted(path.name for path in self._folder.glob(f"*{_KEPT}"))

    def count_aside(self) -> int:
        """How many an operator has to look at."""
        return sum(1 for _ in self._folder.glob(f"*{_ASIDE}"))

    def read(self, name: str) -> Settlement | None:
        """A bill; None where it is gone.

        Raises:
            Unreadable: the file is no bill.
        """
        try:
            return decode_settlement((self._folder / name).read_bytes())
        except FileNotFoundError:
            return None

    def drop(self, name: str) -> None:
        """It was booked."""
        (self._folder / name).unlink(missing_ok=True)

    def set_aside(self, name: str) -> None:
        """It can't be booked; an operator looks at it."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / name).replace(self._folder / f"{name}{_ASIDE}")

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
