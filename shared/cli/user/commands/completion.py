"""`b3os completion`: the script that makes a shell complete `b3os`. Click writes it."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from shared.cli.user.console import say


class _Bash(BashComplete):
    """Without its look at the bash of this machine, which need not be the one that will read the script."""

    @staticmethod
    def _check_version() -> None:
        pass


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print the completion script of a shell; for bash: eval "$(b3os completion bash)"."""
    root = context.find_root().command
    say(_SHELLS[shell](root, {}, "b3os", "_B3OS_COMPLETE").source())
