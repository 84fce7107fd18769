"""A node as a process of its own that takes certificates of its edges alone."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
import time
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from edge.signing import create_key_files, load_signing_key
from shared.heartbeat import send_heartbeat
from shared.ids import new_request_id
from shared.node_token import mint
from shared.redis import connect_redis
from shared.serve import Site, serving
from shared.tls import ServerCertificate
from shared.web import build_app, json_response, render_anthropic
from tests.heartbeats import heartbeat
from tests.integration.edge.parts import until
from tests.integration.node.conftest import CALLER, PATH
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


async def answer_hello(request: web.Request) -> web.Response:
    del request
    return json_response({})


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
        await until(lambda: is_ready(environ), 60)
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await status_for(environ, authority.client_context())
        # With it the gate is reached, which asks for the edge's token besides.
        assert await status_for(environ, authority.client_context(edges.issue("edge", "edge.internal"))) == 401
    finally:
        process.terminate()
        await process.communicate()


async def test_after_a_hangup_other_nodes_are_shown_the_new_certificate(
    environ: dict[str, str], tmp_path: Path, redis_url: str
) -> None:
    authority, later = Authority(tmp_path, "nodes"), Authority(tmp_path, "later")
    pair, peer_pair, port = authority.issue("node", "127.0.0.1"), authority.issue("peer", "127.0.0.1"), free_port()
    peer = build_app(lambda request: render_anthropic)
    peer.router.add_post(PATH, answer_hello)
    environ |= {
        "B3OS_NODE_TLS_CERT_FILE": str(pair.cert_file),
        "B3OS_NODE_TLS_KEY_FILE": str(pair.key_file),
        "B3OS_NODE_PEER_CA_FILE": str(authority.file),
    }
    shown = ServerCertificate(peer_pair.cert_file, peer_pair.key_file, later.file)
    key = load_signing_key(tmp_path / "private.pem")
    ours = ssl.create_default_context(cafile=str(authority.file))
    ours.load_verify_locations(later.file)

    async def ask() -> int:
        await send_heartbeat(redis, heartbeat("n2", model="b3os/b", url=f"https://127.0.0.1:{port}"))
        request_id, now_s = new_request_id(), int(time.time())
        token = mint(key, CALLER, audience=["n1", "n2"], request_id=request_id, method="POST", path=PATH, now_s=now_s)
        url = f"https://127.0.0.1:{environ['B3OS_NODE_PORT']}{PATH}"
        body = {"model": "b3os/b", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as client,
            client.post(url, json=body, ssl=ours, headers=headers) as answer,
        ):
            return answer.status

    async def is_refused() -> bool:
        return await ask() == 503

    async def is_answered() -> bool:
        return await ask() == 200

    async with (
        serving([Site(peer, render_anthropic, "127.0.0.1", port, shown)], drain_s=0),
        connect_redis(as_user("node", redis_url)) as redis,
    ):
        process = await start(environ, tmp_path)
        try:
            await until(lambda: is_ready(environ), 60)
            await until(is_refused, 60)  # 404 until it has heard of the other
            pair.take(later.issue("renewed", "127.0.0.1"))
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            async with asyncio.timeout(60):
                while b"certificate changed" not in await process.stderr.readline():
                    assert process.returncode is None
            await until(is_answered, 60)
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
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == 1
    assert text in said.decode()
    assert "Traceback" not in said.decode()
