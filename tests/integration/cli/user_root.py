"""The user's commands under one root, as the entry points will have them; `python -m` runs it as a program."""

from __future__ import annotations

import click

from shared.cli import user

root = click.Group("b3os", commands={name: getattr(user, name) for name in user.__all__})

if __name__ == "__main__":
    root(prog_name="b3os")
