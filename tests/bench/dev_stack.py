"""`b3os dev --engine scripted` for benchmarks, with the edge's key in hand."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from shared.node_token import Caller, SigningKey, mint
from tests.e2e.stack import DevCommand, DevStack, running_dev


@dataclass(frozen=True, slots=True)
class Stack:
    """A running service, and the edge's key, with which a client can speak to the node itself."""

    facts: DevStack
    key: SigningKey

    def node_token(self, request_id: str, method: str, path: str) -> str:
        """What the edge would send."""
        return node_token(self.key, request_id, method, path)


def node_token(key: SigningKey, request_id: str, method: str, path: str) -> str:
    """A caller of node `n1`, as an edge with this key would name it."""
    caller = Caller("org_bench", "prj_bench", "key", "key_bench", ("infer:run",), {}, None)
    now_s = int(time.time())
    return mint(key, caller, audience=["n1"], request_id=request_id, method=method, path=path, now_s=now_s)


@contextlib.contextmanager
def scripted_stack() -> Iterator[Stack]:
    """Start it in a folder of its own, and stop it."""
    with tempfile.TemporaryDirectory() as folder:
        command = DevCommand(Path(folder) / "home")
        with running_dev(command) as facts:
            yield Stack(facts, _signing_key(command.home / "keys"))


def _signing_key(keys: Path) -> SigningKey:
    (kid,) = json.loads((keys / "edge-public.json").read_text())
    private = load_pem_private_key((keys / "edge-private.pem").read_bytes(), None)
    assert isinstance(private, Ed25519PrivateKey)
    return SigningKey(kid, private)
