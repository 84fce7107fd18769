"""docs/cli.md against the commands."""

from __future__ import annotations

import re
from pathlib import Path

from shared.cli import user
from shared.cli.user import failure

TEXT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def test_the_table_of_exit_codes_is_that_of_the_commands() -> None:
    codes = {value for name, value in vars(failure).items() if name.isupper() and isinstance(value, int)}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)} == codes | {0}


def test_every_command_is_documented() -> None:
    rows = " ".join(re.findall(r"^\| (`.*`) \|", TEXT, re.MULTILINE))
    assert {name for name in user.__all__ if re.search(rf"`(b3os )?{name}\b", rows)} == set(user.__all__)
    assert {name for name in user.keys.commands if f"{name}`" in rows} == set(user.keys.commands)
