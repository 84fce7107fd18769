"""Open a page in the user's browser.

Decides when there is one, and which addresses a server may have opened: pages of the web, and nothing that another
program of the desktop would take for a command.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import webbrowser
from collections.abc import Mapping

from shared.cli.user.address import is_loopback

_PAGE = re.compile(r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?][!-~]*)?")


def has_browser(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a window can open here; a text browser would take the terminal away."""
    if environ.get("BROWSER"):
        return True
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return False
    return platform in ("darwin", "win32") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def is_page(url: str) -> bool:
    """Whether it is a page with TLS, or one of this machine."""
    match = _PAGE.fullmatch(url)
    return match is not None and (match[1] == "https" or is_loopback(match[2].strip("[]")))


def open_page(url: str) -> bool:
    """Open it, if it is one and there is a browser; False if not."""
    if not (is_page(url) and has_browser(os.environ)):
        return False
    with contextlib.suppress(webbrowser.Error, OSError):
        return webbrowser.open(url)
    return False
