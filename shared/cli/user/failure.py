"""How a command of the user's fails: one sentence on stderr and an exit code.

Decides the codes. Must not know what went wrong where.
"""

from __future__ import annotations

from shared.cli.user.text import one_line, redact

FAILED = 1
"""The server refused, or the command could not do its work."""
USAGE = 2
"""The command line is wrong; click's own code."""
NOT_LOGGED_IN = 3
"""No credential, or one that the server does not take."""
TRY_LATER = 4
"""A limit is reached or the service is busy: the same command may succeed later."""
UNREACHABLE = 5
"""Nobody answers there, or the connection broke."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it."""


class Failure(Exception):
    """The end of a command. Its sentence moves no terminal and holds no secret, wherever its words came from."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        self.message = one_line(redact(message))
        super().__init__(self.message)
        self.exit_code = exit_code
