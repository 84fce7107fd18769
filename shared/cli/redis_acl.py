"""`b3os admin redis-acl`: the ACL file for a Redis of one's own, printed.

Decides how passwords are read: from files, one a line, since what stands on a command line is in every list of
processes. Must not know what the users may do.
"""

from __future__ import annotations

from pathlib import Path

import click

from shared.redis_acl import EDGE, NODE, render_acl

MIN_CHARACTERS = 32
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("redis-acl")
@click.option("--edge-password-file", "edge", type=_FILE, required=True, help="One a line; all of them count.")
@click.option("--node-password-file", "node", type=_FILE, required=True, help="Likewise.")
@click.option("--operator-password-file", "operator", type=_FILE, help="Likewise; no user `operator` without it.")
def redis_acl(edge: Path, node: Path, operator: Path | None) -> None:
    """Print Redis's ACL file: the users `edge` and `node`, with the hashes of their passwords."""
    passwords = {EDGE: _read_passwords(edge), NODE: _read_passwords(node)}
    click.echo(render_acl(passwords, () if operator is None else _read_passwords(operator)), nl=False)


def _read_passwords(path: Path) -> list[str]:
    passwords = path.read_text().split()
    if not passwords or min(map(len, passwords)) < MIN_CHARACTERS:
        raise click.ClickException(f"{path}: needs a password of at least {MIN_CHARACTERS} characters on each line")
    return passwords
