"""The file with the tokens of `b3os login`.

Decides where it lies, that nobody but its owner ever reads it, and that a reader sees the old or the new one, whole.
One entry per base URL, so that a token goes to the server that gave it and to no other. Must not know what a token is
good for.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.cli.user.document import Document, NotJson, dig, parse_json, render_json, text_at
from shared.cli.user.failure import Failure

_NAME = "credentials.json"
_MOST_BYTES = 1024 * 1024


def config_folder(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The folder for a user's settings of this program, as the platform has it."""
    named = environ.get("XDG_CONFIG_HOME", "")
    if named.startswith("/"):  # the specification ignores relative ones
        return Path(named) / "b3os"
    home = Path(environ.get("HOME") or Path.home())
    if platform == "win32":
        return Path(environ.get("APPDATA") or home / "AppData" / "Roaming") / "b3os"
    return home / ("Library/Application Support" if platform == "darwin" else ".config") / "b3os"


@dataclass(frozen=True, slots=True)
class CredentialFile:
    """The file in a folder, which need not exist yet.

    A `forgiving` one is for getting rid of tokens: it reads a file that others can read too, and takes a damaged one
    for an empty one.
    """

    folder: Path
    forgiving: bool = False

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.folder / _NAME

    def current_url(self) -> str | None:
        """The server that was logged in to last. Raises as `token_of` does."""
        return text_at(self.read(), "current") or None

    def token_of(self, url: str) -> str | None:
        """The token for a server.

        Raises:
            Failure: others can read the file, or it is damaged.
        """
        return text_at(dig(self.read(), "servers"), url, "token") or None

    def save(self, url: str, token: str) -> None:
        """Keep a token, instead of an older one for this server. Raises as `token_of` does."""
        with self._telling_faults(), self._locked():
            document = self.read()
            servers = {**_servers_of(document), url: {"token": token}}
            self._replace({**document, "version": 1, "current": url, "servers": servers})

    def forget(self, url: str) -> None:
        """Drop the entry of a server; the last one takes the file with it, and so does damage. Raises as `save`."""
        with self._telling_faults():
            if not self.path.exists():
                return
            with self._locked():
                self._drop(url)

    def remove(self) -> None:
        """Drop everything. Raises as `save`."""
        with self._telling_faults():
            self.path.unlink(missing_ok=True)

    def read(self) -> Document:
        """The whole document; empty where there is no file. Raises as `token_of` does."""
        with self._telling_faults():
            try:
                fd = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return {}
            with open(fd, "rb") as file:
                self._check_private(os.fstat(fd))
                return self._parse(file.read(_MOST_BYTES))

    def _parse(self, raw: bytes) -> Document:
        try:
            document = parse_json(raw)
        except NotJson:
            document = None
        if isinstance(document, dict):
            return document
        if self.forgiving:
            return {}
        raise Failure(f"{self.path} is damaged; `b3os logout` removes it")

    def _check_private(self, facts: os.stat_result) -> None:
        if sys.platform == "win32" or self.forgiving:  # there modes tell nothing; the folder is the user's own
            return
        if facts.st_uid != os.geteuid():
            raise Failure(f"{self.path} belongs to another user; it is not used")
        if stat.S_IMODE(facts.st_mode) & 0o077:
            raise Failure(
                f"{self.path} can be read by others on this machine; log out and in again, or `chmod 600` it if"
                " nobody can have seen it"
            )

    def _drop(self, url: str) -> None:
        document = self.read()
        servers = {each: entry for each, entry in _servers_of(document).items() if each != url}
        if not servers:
            self.path.unlink(missing_ok=True)
            return
        current = next(iter(servers)) if dig(document, "current") == url else dig(document, "current")
        self._replace({**document, "current": current, "servers": servers})

    def _replace(self, document: Document) -> None:
        target = self.path.resolve()  # a link stays one
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        beside.unlink(missing_ok=True)  # of a process with this number that was killed
        try:
            # It has its mode from its first moment on: the mask of the process can only take from it.
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(render_json(document) + "\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, or the slower of two logins would undo the other."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sys.platform == "win32":
            yield
            return
        import fcntl  # not on Windows

        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _telling_faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Failure(f"{error.filename or self.path}: {error.strerror or error}") from None


def _servers_of(document: Document) -> Document:
    servers = document.get("servers")
    return servers if isinstance(servers, dict) else {}
