"""LiteLLM's proxy in front of the same stub node, in an environment of its own.

Decides how it is installed, configured and started: one worker, as its documentation says for production, keys in
memory. Its virtual keys need Postgres through Prisma, whose engine is on no package index.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.edge.client import Way
from tests.bench.edge.processes import Stub, running
from tests.bench.edge.stub_node import MODEL
from tests.e2e.stack import ROOT, free_ports

HOME = ROOT / ".b3os" / "bench-litellm"
PATH = "/v1/messages"
_ENVIRON = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches a list of prices
    "LITELLM_TELEMETRY": "False",
}


def install() -> str:
    """Once; its version."""
    python = HOME / "bin" / "python"
    if not (HOME / "bin" / "litellm").exists():
        print("(installing LiteLLM)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-qq", "litellm[proxy]"], check=True)
    told = subprocess.run(
        [str(python), "-c", "from importlib.metadata import version; print(version('litellm'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    return told.stdout.strip()


@contextlib.contextmanager
def running_litellm(stub: Stub) -> Iterator[Way]:
    """Its proxy with one worker; the way has a key in it."""
    (port,) = free_ports(1)
    key = "sk-" + secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(Path(__file__).with_name("litellm_auth.py"), folder)
        digest = hashlib.sha256(key.encode()).hexdigest()
        (folder / "keys.json").write_text(json.dumps({digest: {"user_id": "bench", "team_id": "bench"}}))
        (folder / "config.json").write_text(json.dumps(_config(stub)))  # JSON is YAML
        options = ["--host=127.0.0.1", f"--port={port}", "--num_workers=1", "--config", str(folder / "config.json")]
        environ = {**_ENVIRON, "LITELLM_MASTER_KEY": "sk-" + secrets.token_urlsafe(32)}
        ready = f"http://127.0.0.1:{port}/health/liveliness"
        with running("LiteLLM", [str(HOME / "bin" / "litellm"), *options], environ, ready, cwd=folder) as pid:
            yield Way("through LiteLLM", port, PATH, key, (pid,))


def _config(stub: Stub) -> dict[str, object]:
    model = {"model": f"anthropic/{MODEL}", "api_base": f"http://127.0.0.1:{stub.port}", "api_key": "none"}
    return {
        "model_list": [{"model_name": MODEL, "litellm_params": model}],
        "general_settings": {"custom_auth": "litellm_auth.check"},
    }
