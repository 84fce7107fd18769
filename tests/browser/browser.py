"""A Chromium for tests, from where packages come from anyway, and what it needs to start.

Decides which one runs. On Linux with x86-64 it is the headless one of the npm package in `chromium/`, libraries and
fonts with it, so that nothing of the system is needed; elsewhere Playwright fetches its own. Must not know pages.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TypedDict

from tests.clients.node_modules import install_packages, node

FOLDER = Path(__file__).parent / "chromium"
UNPACKED_WITHIN_S = 120.0
FETCHED_WITHIN_S = 600.0
_PACKED = FOLDER / "node_modules" / "@sparticuz" / "chromium" / "bin"
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/cache</cachedir></fontconfig>
"""  # those of the package: pages look the same on every machine, and Chromium dies where there are none
_UNPACKED = FOLDER / "node_modules" / ".b3os-unpacked"  # `npm ci` takes it away with the version that it is of


class Launch(TypedDict, total=False):
    """Arguments of Playwright's `launch`."""

    executable_path: str
    env: dict[str, str | float | bool]


def prepare_chromium() -> Launch:
    """How to start it; it is installed first where it is missing.

    Raises:
        RuntimeError, subprocess.SubprocessError: it could not be had.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        command = [sys.executable, "-m", "playwright", "install", "chromium-headless-shell"]
        subprocess.run(command, check=True, capture_output=True, timeout=FETCHED_WITHIN_S)
        return {}
    install_packages(FOLDER)
    with (FOLDER / "package.json").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # two runs at once
        if not _UNPACKED.exists():
            _unpack(_UNPACKED.with_suffix(".part"))
    environment = {"LD_LIBRARY_PATH": str(_UNPACKED / "lib"), "FONTCONFIG_FILE": str(_UNPACKED / "fonts.conf")}
    return {"executable_path": str(_UNPACKED / "chromium"), "env": {**os.environ, **environment}}


def _unpack(part: Path) -> None:
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for name in ("chromium", "al2023.tar", "fonts.tar"):
        command = [node(), str(FOLDER / "unpack.mjs"), str(_PACKED / f"{name}.br"), str(part / name)]
        subprocess.run(command, check=True, capture_output=True, timeout=UNPACKED_WITHIN_S)
    for archive in part.glob("*.tar"):
        with tarfile.open(archive) as opened:
            opened.extractall(part, filter="data")
        archive.unlink()
    (part / "chromium").chmod(0o755)
    (part / "fonts.conf").write_text(_FONTS.format(folder=_UNPACKED))
    part.rename(_UNPACKED)
