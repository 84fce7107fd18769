"""Our node and vLLM's own server as processes on the same model, with the same engine arguments and variables.

Decides how they are started, and that none outlives the measurement.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from node.catalog.served import ServedModel
from node.engine.vllm_setup import engine_arguments, set_environment
from shared.ids import new_request_id
from shared.node_token import SigningKey
from tests.bench.dev_stack import node_token
from tests.e2e.stack import ROOT, free_ports

READY_WITHIN_S = 300.0
STOP_WITHIN_S = 60.0
OUR_PATH, THEIR_PATH = "/v1/infer/v1/messages", "/v1/messages"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its process, the URL of its messages, and the headers that a request needs."""

    name: str
    pid: int
    url: str
    headers: Callable[[], dict[str, str]]


@contextlib.contextmanager
def our_node(model: ServedModel) -> Iterator[Server]:
    """`python -m node`, without an edge."""
    key = SigningKey("k1", Ed25519PrivateKey.generate())
    public = key.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as name:
        keys = Path(name) / "edge-public.json"
        keys.write_text(json.dumps({key.kid: public}))
        environ = {
            "B3OS_NODE_PORT": str(port),
            "B3OS_NODE_OPERATOR_PORT": str(port + 1),
            "B3OS_NODE_EDGE_KEYS_FILE": str(keys),
            **_settings(model),
        }
        command = [sys.executable, "-m", "node"]
        with _running("b3os node", command, environ, ready=f"http://127.0.0.1:{port + 1}/readyz") as pid:
            yield Server(
                "b3os node",
                pid,
                f"http://127.0.0.1:{port}{OUR_PATH}",
                lambda: {"Authorization": f"Bearer {node_token(key, new_request_id(), 'POST', OUR_PATH)}"},
            )


@contextlib.contextmanager
def vllm_server(model: ServedModel) -> Iterator[Server]:
    """vLLM's own server. Its `vllm` command can't be used: the CPU package has not the name that it looks for."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", f"--port={port}", "--host=127.0.0.1"]
    with _running("vLLM", [*command, *vllm_options(model)], {}, ready=f"http://127.0.0.1:{port}/health") as pid:
        yield Server("vLLM's server", pid, f"http://127.0.0.1:{port}{THEIR_PATH}", dict)


def vllm_options(model: ServedModel) -> list[str]:
    """Our engine arguments as options of vLLM's command line, our model id, and no log lines."""
    options = [f"--served-model-name={model.served_id}", "--disable-uvicorn-access-log"]
    if model.tool_parser is not None:
        options += [f"--tool-call-parser={model.tool_parser}", "--enable-auto-tool-choice"]
    if model.chat_template is not None:
        options.append(f"--chat-template={model.chat_template}")
    for name, value in engine_arguments(model, on_cpu=True).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            options.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            options.append(f"--{flag}={value}")
    return options


def _settings(model: ServedModel) -> dict[str, str]:
    named: Mapping[str, Any] = {
        "B3OS_MODEL": model.source,
        "B3OS_MODEL_SERVED_ID": model.served_id,
        "B3OS_MODEL_CONTEXT_TOKENS": model.context_tokens,
        "B3OS_MODEL_REASONING_PARSER": model.reasoning_parser,
        "B3OS_MODEL_TOOL_PARSER": model.tool_parser,
        "B3OS_MODEL_CHAT_TEMPLATE": model.chat_template,
        "B3OS_MODEL_ENGINE": json.dumps(dict(model.engine)),
    }
    return {name: str(value) for name, value in named.items() if value is not None}


@contextlib.contextmanager
def _running(name: str, command: Sequence[str], environ: Mapping[str, str], *, ready: str) -> Iterator[int]:
    """Start, wait until it answers, and end it; what it wrote is told only if it fails. Gives the process's id."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environ}, cwd=ROOT
        )
        try:
            if not _becomes_ready(process, ready):
                log.seek(0)
                raise SystemExit(f"{name} did not start:\n{log.read().decode()[-8000:]}")
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()  # its engine's process ends with it (node/engine/orphan.py)
                process.wait()


def _becomes_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline_s = time.monotonic() + READY_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url, timeout=5):
            return True
        time.sleep(0.5)
    return False


@contextlib.contextmanager
def both_servers(model: ServedModel) -> Iterator[list[Server]]:
    """Both at once, since an idle one costs nothing; the requests come in turn."""
    set_environment(model, on_cpu=True)  # the variables that a node sets for itself, for vLLM's server as well
    with our_node(model) as ours, vllm_server(model) as theirs:
        yield [ours, theirs]
