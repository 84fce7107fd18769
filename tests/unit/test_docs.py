"""The documents against the code that they describe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edge.auth.credentials import SCANNER_PATTERN, mint_credential
from edge.settings import EdgeSettings
from node.settings import NodeSettings
from shared import errors
from shared.settings import Section

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text()


def test_the_table_of_errors_is_the_catalogue() -> None:
    documented = set(re.findall(r"^\| (\d{3}) \| `(\w+)` \|", read("docs/errors.md"), re.MULTILINE))
    catalogue = {
        (str(value.status), value.code) for value in vars(errors).values() if isinstance(value, errors.Condition)
    }
    assert documented == catalogue


@pytest.mark.parametrize("settings", [EdgeSettings, NodeSettings])
def test_every_setting_is_documented_with_its_default(settings: type[EdgeSettings | NodeSettings]) -> None:
    text = read("docs/settings.md")
    for name, field in settings.model_fields.items():
        assert isinstance(field.annotation, type)
        assert issubclass(field.annotation, Section)
        aliases = {target: alias for alias, target in field.annotation.env_aliases.items()}
        for setting, info in field.annotation.model_fields.items():
            variable = aliases.get(setting, f"B3OS_{name}_{setting}".upper())
            default = info.get_default(call_default_factory=True)
            is_json = isinstance(default, dict | tuple | list | bool) and default != {}
            default = json.dumps(default) if is_json else default
            shown = f"`{default}`" if default not in (None, {}) else ""
            assert re.search(rf"^\| `{variable}` \| {re.escape(shown)} ?\|", text, re.MULTILINE), (variable, shown)


def test_the_pattern_for_secret_scanners_is_the_one_that_keys_have() -> None:
    assert f"`{SCANNER_PATTERN}`" in read("SECURITY.md")
    assert re.search(SCANNER_PATTERN, f"key={mint_credential().token};")


def test_the_documents_name_only_files_that_exist() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/operations.md"):
        for path in re.findall(r"`((?:edge|node|shared|tests|docs)/[\w/.-]*)`", read(name)):
            assert (ROOT / path).exists(), f"{name}: {path}"


def test_every_log_line_that_operators_watch_is_written() -> None:
    watched = read("docs/operations.md").partition("## What to watch")[2].partition("## ")[0]
    messages = [
        message
        for cell in re.findall(r"^\| (`.*?) \|", watched, re.MULTILINE)
        for message in re.findall("`([^`]+)`", cell)
    ]
    code = "\n".join(path.read_text() for part in ("edge", "node", "shared") for path in (ROOT / part).rglob("*.py"))
    assert len(messages) > 20
    assert [message for message in messages if f'"{message}"' not in code] == []
