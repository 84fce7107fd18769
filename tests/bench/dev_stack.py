"""`b3os dev --engine scripted` on ports of its own, for benchmarks."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from shared.node_token import Caller, SigningKey, mint

START_LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Stack:
    """A running service: what dev.json says, and the edge's key, with which a client can speak to the node itself."""

    facts: dict[str, Any]
    key: SigningKey

    def node_token(self, request_id: str, method: str, path: str) -> str:
        """What the edge would send."""
        caller = Caller("org_bench", "prj_bench", "key", "key_bench", ("infer:run",), {}, None)
        now_s = int(time.time())
        return mint(self.key, caller, audience=["n1"], request_id=request_id, method=method, path=path, now_s=now_s)


def free_ports(count: int) -> list[int]:
    """Ports that nobody holds right now, each with its successor free too."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                found.append(port)
    return found


@contextlib.contextmanager
def scripted_stack() -> Iterator[Stack]:
    """Start it, wait for dev.json, stop it."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        edge, node, redis = free_ports(3)
        ports = [f"--edge-port={edge}", f"--node-port={node}", f"--redis-port={redis}"]
        command = [sys.executable, "-m", "shared.cli", "dev", "--engine", "scripted", f"--home={home}", *ports]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                yield Stack(_wait_for(home / "dev.json", process), _signing_key(home / "keys"))
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(START_LIMIT_S)


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    deadline_s = time.monotonic() + START_LIMIT_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise SystemExit("b3os dev did not start")
        time.sleep(0.1)
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts


def _signing_key(keys: Path) -> SigningKey:
    (kid,) = json.loads((keys / "edge-public.json").read_text())
    private = load_pem_private_key((keys / "edge-private.pem").read_bytes(), None)
    assert isinstance(private, Ed25519PrivateKey)
    return SigningKey(kid, private)
