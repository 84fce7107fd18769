"""`python -m node` with settings of the guard that must not be: one sentence, and no node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.stack import DevStack
from tests.integration.egress.conftest import lab_environment
from tests.integration.egress.lab import Lab


@pytest.fixture
def environment(stack: DevStack, egress_lab: Lab) -> dict[str, str]:
    """With which a node would start, though it could not listen: its ports are a running one's."""
    port = int(stack.node_url.rpartition(":")[2])
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("B3OS_")},
        **lab_environment(egress_lab),
        "B3OS_NODE_ENGINE": "scripted",
        "B3OS_NODE_EDGE_KEYS_FILE": str(stack.home / "keys" / "edge-public.json"),
        "B3OS_NODE_PORT": str(port),
        "B3OS_NODE_OPERATOR_PORT": str(port + 1),
    }


def why_not(environment: dict[str, str], folder: Path) -> str:
    """What the node says on its way out; `folder` has no b3os.toml."""
    command = [sys.executable, "-m", "node"]
    ended = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    return ended.stderr


def test_with_settings_that_may_be_it_would_start(environment: dict[str, str], tmp_path: Path) -> None:
    """Else the others here would prove nothing."""
    assert "the settings are wrong" not in why_not(environment, tmp_path)


@pytest.mark.parametrize("name", [None, "", "production", "staging", "TEST"])
def test_private_networks_are_opened_in_dev_and_test_only(
    environment: dict[str, str], tmp_path: Path, name: str | None
) -> None:
    del environment["B3OS_ENV"]
    said = why_not(environment | ({} if name is None else {"B3OS_ENV": name}), tmp_path)
    heading, sentence = said.splitlines()
    assert heading == "b3os node: the settings are wrong:"
    assert "B3OS_EGRESS_ALLOW_NETWORKS" in sentence
    assert "would let any caller reach these networks" in sentence
    assert "B3OS_ENV has to be dev or test" in sentence


@pytest.mark.parametrize(
    "content", [None, b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff\0"]
)
def test_certificates_that_are_none_are_told_by_their_file(
    environment: dict[str, str], tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    said = why_not(environment | {"B3OS_EGRESS_CA_FILE": str(file)}, tmp_path)
    heading, sentence = said.splitlines()
    assert heading == "b3os node: the settings are wrong:"
    assert str(file) in sentence
    assert "ca_file" in sentence.lower()
    assert "_ssl.c" not in sentence


def test_certificates_that_cannot_be_read_are_told_by_their_file(environment: dict[str, str], tmp_path: Path) -> None:
    """A file whose every byte is an error to read, for root too."""
    said = why_not(environment | {"B3OS_EGRESS_CA_FILE": "/proc/self/mem"}, tmp_path)
    assert "/proc/self/mem" in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 2
