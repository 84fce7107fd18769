"""The seams, read from the imports: a change that crosses one fails here and says which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for side in ("edge", "node", "shared") for path in (ROOT / side).rglob("*.py"))


def imports_of(path: Path) -> set[str]:
    """Top-level names of every module that a file imports, wherever in the file."""
    found = set()
    for item in ast.walk(ast.parse(path.read_text())):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, f"{path}: a relative import"
            found.add(item.module or "")
    return found


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_packages(path: Path) -> set[str]:
    return {module.partition(".")[0] for module in imports_of(path)}


def below(folder: str) -> Iterator[Path]:
    return (path for path in SOURCES if names(path).startswith(folder))


def test_edge_and_node_never_import_each_other() -> None:
    assert not [names(path) for path in below("edge/") if "node" in imported_packages(path)]
    assert not [names(path) for path in below("node/") if "edge" in imported_packages(path)]


def test_shared_imports_neither_edge_nor_node() -> None:
    assert not [names(path) for path in below("shared/") if imported_packages(path) & {"edge", "node"}]


def test_only_one_module_imports_vllm() -> None:
    assert [names(path) for path in SOURCES if "vllm" in imported_packages(path)] == ["node/engine/vllm_engine.py"]


def test_only_one_module_imports_opentelemetry() -> None:
    assert [names(path) for path in SOURCES if "opentelemetry" in imported_packages(path)] == ["shared/otel.py"]


def test_forks_know_nothing_of_what_is_done_in_them() -> None:
    for path in below("node/forks/"):
        ours = {module for module in imports_of(path) if module.partition(".")[0] in ("node", "shared")}
        assert all(module.startswith(("node.forks.", "node.shares")) for module in ours), names(path)


def test_translation_knows_neither_http_nor_the_loop() -> None:
    for path in below("node/translate/"):
        assert not imported_packages(path) & {"aiohttp", "aiohttp_sse", "asyncio", "redis"}, names(path)
        assert not [item for item in ast.walk(ast.parse(path.read_text())) if isinstance(item, ast.Await)], names(
            path
        )


def test_the_wire_knows_neither_engine_nor_http() -> None:
    for path in below("node/wire/"):
        assert not {module for module in imports_of(path) if module.startswith(("node.engine", "aiohttp"))}, names(
            path
        )


@pytest.mark.parametrize("path", SOURCES, ids=names)
def test_only_composition_roots_read_the_environment(path: Path) -> None:
    if path.name in ("__main__.py", "cli.py") or names(path).startswith("shared/cli/"):
        return
    for item in ast.walk(ast.parse(path.read_text())):
        if isinstance(item, ast.Attribute) and item.attr in ("environ", "getenv"):
            # These write what vLLM reads, and pass on what a child needs; they take no setting of ours from it.
            allowed = ("node/engine/vllm_setup.py", "node/forks/pool.py")
            assert names(path) in allowed, f"{names(path)}:{item.lineno} reads the environment"
