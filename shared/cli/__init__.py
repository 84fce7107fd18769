"""The `b3os` command: a list of subcommands that the packages bring by entry point.

Must not import edge or node: the entry-point group `b3os.commands` in pyproject.toml names theirs.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import click

from shared.settings import SettingsError


class Commands(click.Group):
    """Loads a subcommand when it is asked for, so that `b3os keys` never pays for vLLM."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all that is installed."""
        return sorted(point.name for point in entry_points(group="b3os.commands"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one that was named."""
        for point in entry_points(group="b3os.commands", name=cmd_name):
            command: click.Command = point.load()
            return command
        return None


@click.group(cls=Commands)
@click.version_option(package_name="b3os")
def root() -> None:
    """B3OS inference: the Anthropic Messages API on a model of your own."""


def main() -> None:
    """Run the command line; settings at fault are told in plain lines, exit code 2."""
    try:
        root()
    except SettingsError as error:
        click.echo(f"b3os: the settings are wrong:\n{error}", err=True)
        raise SystemExit(2) from None
