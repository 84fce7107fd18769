"""Every mitigation of docs/threat-model.md names a test that is there.

A proof reads like T `test_corpus` (`redirect`) or N `test_images` (`test_nothing_is_fetched_…`): a letter for the
folder, a file of it, and groups of the corpus, or tests of the file, whose names may be cut with an ellipsis.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.integration.egress.test_corpus import CASES

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "threat-model.md").read_text()
FOLDERS = dict(re.findall(r"`([A-Z])` is `(tests/[a-z0-9/]+)/`", DOCUMENT))
GROUPS = {case["group"] for case in CASES}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in DOCUMENT.splitlines()
    if line.startswith("| ") and "---" not in line and not line.startswith("| attack |")
]
_PROOF = re.compile(r"([A-Z]) `(test_\w+)`(?: \(([^)]*)\))?")


def functions_of(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_document_has_rows_and_folders() -> None:
    assert len(ROWS) > 30
    assert len(FOLDERS) >= 4


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:60] for row in ROWS])
def test_a_mitigation_names_its_proof(row: list[str]) -> None:
    attack, answer, proof = row
    assert attack
    assert answer
    found = _PROOF.findall(proof)
    assert found, "no proof"
    for letter, stem, details in found:
        file = ROOT / FOLDERS[letter] / f"{stem}.py"
        assert file.is_file(), file
        for name in re.findall(r"`([^`]+)`", details):
            if name.startswith("test_"):
                prefix = name.removesuffix("…")
                known = functions_of(file)
                assert any(one.startswith(prefix) if name.endswith("…") else one == name for one in known), name
            else:
                assert name in GROUPS, name
