"""TLS on the edge's own port, by real handshakes with a real process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.edge.conftest import edge_redis_url  # noqa: F401 - a fixture
from tests.integration.edge.parts import MESSAGES, until
from tests.integration.edge.test_process import Surroundings, assert_one_sentence, is_ready
from tests.integration.tls.authority import Authority, Pair, serial_of

DASHBOARD = "dash.example.com"
STAYS = "the new certificate can't be used; the old one stays"


class Edge:
    """A running edge with TLS, its authority, and the files that it reads."""

    def __init__(self, here: Surroundings, authority: Authority, process: asyncio.subprocess.Process) -> None:
        self.here, self.authority, self.process = here, authority, process
        self.pair = Pair(here.folder / "edge-cert.pem", here.folder / "edge-key.pem")
        self.url = f"https://localhost:{here.port}"

    def shake_hands(self, context: ssl.SSLContext | None = None) -> tuple[int, str | None, str | None]:
        """The serial number of what it shows, the version, and the protocol that was agreed on."""
        chosen = context or self.authority.client_context()
        with (
            socket.create_connection(("127.0.0.1", self.here.port), timeout=60) as plain,
            chosen.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            shown = connection.getpeercert(binary_form=True)
            assert shown is not None
            return serial_of(shown), connection.version(), connection.selected_alpn_protocol()

    async def log_line(self, message: str) -> dict[str, object]:
        """The next line of this message."""
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            async for line in self.process.stderr:
                told: dict[str, object] = json.loads(line)
                if told.get("message") == message:
                    return told
        raise AssertionError("it ended without a word")


@pytest.fixture
def here(tmp_path: Path, edge_redis_url: str) -> Surroundings:  # noqa: F811
    return Surroundings(tmp_path, edge_redis_url)


@pytest.fixture
async def edge(here: Surroundings) -> AsyncIterator[Edge]:
    authority = Authority(here.folder)
    pair = authority.issue("edge", "localhost", DASHBOARD)
    here.environ |= {
        "B3OS_EDGE_TLS_CERT_FILE": str(pair.cert_file),
        "B3OS_EDGE_TLS_KEY_FILE": str(pair.key_file),
        "B3OS_DASHBOARD_HOSTS": DASHBOARD,
    }
    process = await here.start("edge")
    try:
        await until(lambda: is_ready(here), 60)
        yield Edge(here, authority, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_new_handshakes_get_the_new_chain_and_connections_go_on(edge: Edge) -> None:
    first, _, _ = edge.shake_hands()
    connector = aiohttp.TCPConnector(ssl=edge.authority.client_context(), limit=1)
    async with aiohttp.ClientSession(edge.url, connector=connector) as client:
        async with client.post(MESSAGES, json={}) as answer:
            assert answer.status == 401
            await answer.read()
        [held] = [connection for idle in connector._conns.values() for connection, _ in idle]
        edge.pair.take(edge.authority.issue("next", "localhost"))
        edge.process.send_signal(signal.SIGHUP)
        await edge.log_line("certificate changed")
        second, _, _ = edge.shake_hands()
        assert second != first
        async with client.post(MESSAGES, json={}) as answer:
            assert answer.status == 401
            await answer.read()
        assert [connection for idle in connector._conns.values() for connection, _ in idle] == [held]


async def test_a_program_is_sent_to_a_page_with_tls(here: Surroundings) -> None:
    """Without names of the dashboard it is this machine, where pages without TLS would do else."""
    authority = Authority(here.folder)
    pair = authority.issue("edge", "localhost")
    here.environ |= {
        "B3OS_EDGE_TLS_CERT_FILE": str(pair.cert_file),
        "B3OS_EDGE_TLS_KEY_FILE": str(pair.key_file),
    }
    process = await here.start("edge")
    try:
        await until(lambda: is_ready(here), 60)
        url, page = "v1/auth/device/code", f"https://localhost:{here.port}/device"
        connector = aiohttp.TCPConnector(ssl=authority.client_context())
        async with (
            aiohttp.ClientSession(f"https://localhost:{here.port}/", connector=connector) as client,
            client.post(url, json={}) as answer,
        ):
            told = await answer.json()
        assert told["verification_uri"] == page
        assert told["verification_uri_complete"] == f"{page}?user_code={told['user_code']}"
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("damage", ["cut", "key of another", "gone", "no certificate"])
async def test_a_broken_pair_keeps_the_old_one_and_a_later_good_one_counts(edge: Edge, damage: str) -> None:
    first, _, _ = edge.shake_hands()
    other = edge.authority.issue("other", "localhost")
    whole = edge.pair.cert_file.read_bytes()
    match damage:
        case "cut":
            edge.pair.cert_file.write_bytes(whole[:200])
        case "key of another":
            edge.pair.key_file.write_bytes(other.key_file.read_bytes())
        case "gone":
            edge.pair.cert_file.unlink()
        case _:
            edge.pair.cert_file.write_text("nothing")
    edge.process.send_signal(signal.SIGHUP)
    assert str(edge.here.folder) in str((await edge.log_line(STAYS))["why"])
    assert edge.shake_hands()[0] == first
    edge.pair.take(other)
    edge.process.send_signal(signal.SIGHUP)
    await edge.log_line("certificate changed")
    assert edge.shake_hands()[0] != first


async def test_a_hangup_in_a_drain_ends_nothing(edge: Edge) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", edge.here.port, ssl=edge.authority.client_context(), server_hostname="localhost"
    )
    head = f"POST /v1/auth/login HTTP/1.1\r\nHost: {DASHBOARD}\r\nOrigin: https://{DASHBOARD}\r\n"
    kind = "Content-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    writer.write((head + kind).encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")  # its handler has begun
    edge.process.send_signal(signal.SIGTERM)

    async def is_deaf() -> bool:
        try:
            edge.shake_hands()
        except OSError:
            return True
        return False

    await until(is_deaf, 60)
    edge.process.send_signal(signal.SIGHUP)
    writer.close()
    async with asyncio.timeout(60):
        await edge.process.communicate()
    assert edge.process.returncode == 0


async def test_versions_below_1_2_are_refused_and_http_1_1_is_agreed_on(edge: Edge) -> None:
    newest = edge.authority.client_context()
    newest.set_alpn_protocols(["h2", "http/1.1"])
    assert edge.shake_hands(newest)[1:] == ("TLSv1.3", "http/1.1")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_1):
        context = edge.authority.client_context()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            context.minimum_version, context.maximum_version = version, version
        if version == ssl.TLSVersion.TLSv1_2:
            assert edge.shake_hands(context)[1] == "TLSv1.2"
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                edge.shake_hands(context)


async def test_plain_http_on_the_port_is_no_answer_and_nothing_of_it_is_logged(edge: Edge) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.here.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer b3os_sk_secret\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        assert b"HTTP" not in await reader.read()
    writer.close()
    assert edge.shake_hands()[1] == "TLSv1.3"
    edge.process.send_signal(signal.SIGTERM)
    _, said = await edge.process.communicate()
    assert b"b3os_sk_secret" not in said


async def test_hsts_is_said_under_the_dashboard_s_name_alone(edge: Edge) -> None:
    connector = aiohttp.TCPConnector(ssl=edge.authority.client_context())
    async with aiohttp.ClientSession(edge.url, connector=connector) as client:
        for host, said in ((DASHBOARD, "max-age=31536000"), ("api.example.com", None), ("localhost", None)):
            async with client.get("/v1/auth/session", headers={"Host": host}) as answer:
                assert answer.status == 401
                assert answer.headers.get("Strict-Transport-Security") == said, host


async def test_a_session_s_cookie_keeps_its_rules_behind_the_edge_s_own_tls(edge: Edge) -> None:
    password = "correct horse battery staple"
    code, _, err = await edge.here.run("admin", "user", "create", "ada@tls.example", text=f"{password}\n")
    assert code == 0, err
    connector = aiohttp.TCPConnector(ssl=edge.authority.client_context())
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(edge.url, connector=connector, cookie_jar=jar) as client:
        body = {"email": "ada@tls.example", "password": password}

        async def log_in(origin: str) -> aiohttp.ClientResponse:
            headers = {"Host": DASHBOARD, "Origin": origin}
            async with client.post("/v1/auth/login", json=body, headers=headers) as answer:
                await answer.read()
                return answer

        assert (await log_in(f"http://{DASHBOARD}")).status == 403
        answer = await log_in(f"https://{DASHBOARD}")
        assert answer.status == 200
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith("__Host-b3os_session=")
        assert {"Secure", "HttpOnly", "Path=/"} <= set(cookie.split("; "))
        headers = {"Host": DASHBOARD, "Cookie": cookie.partition(";")[0]}
        async with client.get("/v1/auth/session", headers=headers) as seen:
            assert seen.status == 200


async def test_the_end_of_the_certificate_is_told_to_prometheus(edge: Edge) -> None:
    url = f"http://127.0.0.1:{edge.here.operator_port}/metrics"
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        families = {family.name: family for family in text_string_to_metric_families(await answer.text())}
    [sample] = families["b3os_tls_certificate_expires_seconds"].samples
    assert sample.value > 1_700_000_000


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"B3OS_EDGE_TLS_CERT_FILE": "edge-cert.pem"}, 2, "tls_cert_file and tls_key_file go together"),
        ({"B3OS_EDGE_NODE_CLIENT_KEY_FILE": "x"}, 2, "node_client_cert_file and node_client_key_file go together"),
        ({"B3OS_EDGE_TLS_CERT_FILE": "none", "B3OS_EDGE_TLS_KEY_FILE": "none"}, 1, "can't be read"),
        ({"B3OS_EDGE_NODE_CA_FILE": "private.pem"}, 1, "private.pem is no certificate in PEM"),
    ],
)
async def test_files_that_can_t_be_used_are_told_at_the_start(
    here: Surroundings, settings: dict[str, str], code: int, text: str
) -> None:
    here.environ |= settings
    await assert_one_sentence(here, code, text)
