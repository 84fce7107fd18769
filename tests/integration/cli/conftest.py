"""The commands in this process, or as a program, against a played server, with a folder of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shared.cli import root
from shared.cli.user.credentials import CredentialFile
from tests.e2e.stack import ROOT
from tests.integration.cli.played import PlayedServer, playing

KEY = "b3os_sk_" + "0" * 32 + "_0000000"
WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as one document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Stdout as a document a line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Cli:
    """`b3os` with a home, and with a server and a key in its environment unless a test takes them out."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> CredentialFile:
        """Its credentials."""
        return CredentialFile(self.home / "b3os")

    def run(self, *arguments: str, stdin: str = "", **environ: str | None) -> Ran:
        """In this process."""
        absent = {name: None for name in os.environ if name.startswith("B3OS_") or name.endswith("_PROXY")}
        given = {**absent, **self.environ, **environ}
        result = CliRunner().invoke(root, arguments, input=stdin, env=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def command(self, *arguments: str) -> list[str]:
        """What runs it as a program."""
        return [sys.executable, "-m", "shared.cli", *arguments]

    def start(
        self,
        *arguments: str,
        command: Any = None,
        stdin: Any = subprocess.DEVNULL,
        stdout: Any = subprocess.PIPE,
        stderr: Any = subprocess.PIPE,
        **environ: str,
    ) -> subprocess.Popen[str]:
        """As a program."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("B3OS_")}
        return subprocess.Popen(
            command or self.command(*arguments),
            env={**inherited, **self.environ, **environ},
            cwd=ROOT,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str], stdin: str | None = None) -> Ran:
        """Wait for its end."""
        out, err = process.communicate(stdin, timeout=WITHIN_S)
        return Ran(process.returncode, out, err)


@pytest.fixture
def server() -> Iterator[PlayedServer]:
    with playing() as server:
        yield server


@pytest.fixture
def stranger(tmp_path: Path) -> Cli:
    """Nobody: no login, no key, no server."""
    return Cli(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.fixture
def cli(stranger: Cli, server: PlayedServer) -> Cli:
    """Somebody with a key for the played server."""
    stranger.environ |= {"B3OS_URL": server.url, "B3OS_API_KEY": KEY}
    return stranger
