"""A node as a process of its own that takes certificates of its edges alone."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest

from edge.signing import create_key_files
from tests.integration.edge.parts import until
from tests.integration.tls.authority import Authority
from tests.redis_server import as_user, free_port

ROOT = Path(__file__).parents[3]


@pytest.fixture
def environ(tmp_path: Path, redis_url: str) -> dict[str, str]:
    create_key_files(tmp_path / "private.pem", tmp_path / "public.json")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("B3OS_")}
    return ours | {
        "B3OS_HOME": str(tmp_path),
        "B3OS_REDIS_URL": as_user("node", redis_url),
        "B3OS_NODE_PORT": str(free_port()),
        "B3OS_NODE_OPERATOR_PORT": str(free_port()),
        "B3OS_NODE_EDGE_KEYS_FILE": str(tmp_path / "public.json"),
        "B3OS_NODE_ENGINE": "scripted",
        "PYTHONPATH": str(ROOT),
    }


async def start(environ: dict[str, str], folder: Path) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "node", env=environ, cwd=folder, stdout=pipe, stderr=pipe
    )


async def is_ready(environ: dict[str, str]) -> bool:
    url = f"http://127.0.0.1:{environ['B3OS_NODE_OPERATOR_PORT']}/readyz"
    try:
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def status_for(environ: dict[str, str], context: ssl.SSLContext) -> int:
    url = f"https://127.0.0.1:{environ['B3OS_NODE_PORT']}/v1/infer/models"
    async with aiohttp.ClientSession() as client, client.get(url, ssl=context) as answer:
        return answer.status


async def test_who_shows_no_certificate_of_an_edge_gets_no_answer(environ: dict[str, str], tmp_path: Path) -> None:
    authority, edges = Authority(tmp_path, "nodes"), Authority(tmp_path, "edges")
    pair = authority.issue("node", "127.0.0.1")
    environ |= {
        "B3OS_NODE_TLS_CERT_FILE": str(pair.cert_file),
        "B3OS_NODE_TLS_KEY_FILE": str(pair.key_file),
        "B3OS_NODE_CLIENT_CA_FILE": str(edges.file),
    }
    process = await start(environ, tmp_path)
    try:
        await until(lambda: is_ready(environ), 30)
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await status_for(environ, authority.client_context())
        # With it the gate is reached, which asks for the edge's token besides.
        assert await status_for(environ, authority.client_context(edges.issue("edge", "edge.internal"))) == 401
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("B3OS_NODE_CLIENT_CA_FILE", "client_ca_file needs tls_cert_file"),
        ("B3OS_NODE_TLS_KEY_FILE", "tls_cert_file and tls_key_file go together"),
    ],
)
async def test_halves_of_a_setting_are_told_at_the_start(
    environ: dict[str, str], tmp_path: Path, name: str, text: str
) -> None:
    process = await start(environ | {name: "x.pem"}, tmp_path)
    async with asyncio.timeout(30):
        _, said = await process.communicate()
    assert process.returncode == 1
    assert text in said.decode()
    assert "Traceback" not in said.decode()
