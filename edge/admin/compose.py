"""`b3os admin compose-secrets`: what docker-compose.yml mounts, made once.

Decides which files there are and who may read them: the folder is its owner's alone, and the files are open, since in
a container another user reads them. Must not know what the users of Redis may do.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from edge.signing import create_key_files
from shared.redis_acl import EDGE, NODE, render_acl

REDIS = "redis:6379/0"
"""By the name of its service."""


@click.command("compose-secrets")
@click.argument("folder", type=click.Path(path_type=Path), default="secrets")
def compose_secrets(folder: Path) -> None:
    """Make passwords, Redis's ACL file and the edge's signing key in FOLDER, for docker-compose.yml."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise click.ClickException(f"{folder} exists already; nothing was changed") from None
    except OSError as error:
        raise click.ClickException(f"{folder} can't be made: {error.strerror}") from None
    passwords = {user: secrets.token_hex(24) for user in ("edge", "node", "operator")}
    users = {user: [passwords[user.name]] for user in (EDGE, NODE)}
    texts = {
        "redis.acl": render_acl(users, [passwords["operator"]]),
        "edge.env": f"B3OS_REDIS_URL=redis://edge:{passwords['edge']}@{REDIS}\n",
        "node.env": f"B3OS_REDIS_URL=redis://node:{passwords['node']}@{REDIS}\n",
        "operator.password": f"{passwords['operator']}\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    create_key_files(folder / "edge-private.pem", folder / "edge-public.json")
    (folder / "operator.password").chmod(0o600)
    for name in ("redis.acl", "edge-private.pem", "edge-public.json"):  # mounted; the rest is read by compose itself
        (folder / name).chmod(0o644)
    for name in ("edge.env", "node.env"):
        (folder / name).chmod(0o600)
    click.echo(f"made {folder}; keep a copy elsewhere: without edge-private.pem no node trusts the edge")
