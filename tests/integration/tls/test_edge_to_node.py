"""TLS between the edge and its nodes, each side knowing the other by its certificate."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from multidict import CIMultiDict

from edge.cluster import Carried, Cluster
from edge.routing import Route
from edge.settings import EdgeSection
from edge.upstream import NodeClient, Outgoing
from node.forward import Forwarder
from shared.errors import ApiError
from shared.node_hosts import PRIVATE, NodeHosts
from shared.serve import Site, serving
from shared.tls import BadCertificate, ClientCertificate, ServerCertificate
from shared.web import build_app, json_response, render_anthropic
from tests.integration.edge.parts import finding_nobody
from tests.integration.tls.authority import Authority, Pair
from tests.redis_server import free_port


class Nodes:
    """A listener that takes certificates of `edges` alone, and how clients of several kinds fare with it."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.edges = Authority(folder, "nodes"), Authority(folder, "edges")
        self.pair = self.authority.issue("node", "127.0.0.1")
        self.certificate = ServerCertificate(self.pair.cert_file, self.pair.key_file, self.edges.file)
        self.port = free_port()

    async def ask(self, tls: ssl.SSLContext | None) -> int:
        """The status that an edge gets with these files."""
        cluster = Cluster({"n1": f"https://127.0.0.1:{self.port}"}, NodeHosts(PRIVATE), time.monotonic)
        route = Route(tuple(cluster.list_nodes()))
        outgoing = Outgoing("GET", "/hello", CIMultiDict(), None, sign=lambda route: "")
        async with NodeClient.opened(EdgeSection.model_validate({"connect_s": 60}), cluster, tls) as client:
            with Carried() as carried:
                response = await client.send_request(route, outgoing, carried, finding_nobody())
                await response.read()
                return response.status


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(tmp_path)

    async def hello(request: web.Request) -> web.Response:
        del request
        return json_response({})

    app = build_app(lambda request: render_anthropic)
    app.router.add_get("/hello", hello)
    async with serving([Site(app, render_anthropic, "127.0.0.1", nodes.port, nodes.certificate)], drain_s=0):
        yield nodes


def shown(nodes: Nodes, authority: Authority) -> ClientCertificate:
    """An edge that trusts the node, and shows a certificate of this authority."""
    pair = authority.issue("edge", "edge.internal")
    return ClientCertificate(nodes.authority.file, pair.cert_file, pair.key_file)


async def test_an_edge_with_its_certificate_is_let_in(nodes: Nodes) -> None:
    assert await nodes.ask(shown(nodes, nodes.edges).context) == 200


async def test_an_edge_without_a_certificate_or_with_a_stranger_s_is_not(nodes: Nodes, tmp_path: Path) -> None:
    stranger = shown(nodes, Authority(tmp_path, "stranger"))
    for tls in (ClientCertificate(nodes.authority.file), stranger):
        with pytest.raises(ApiError, match="node_unavailable"):
            await nodes.ask(tls.context)


@pytest.mark.parametrize("trusted", ["another", "system"])
async def test_an_edge_sends_nothing_to_a_node_that_it_does_not_trust(
    nodes: Nodes, tmp_path: Path, trusted: str
) -> None:
    tls = ClientCertificate(Authority(tmp_path, "another").file).context if trusted == "another" else None
    with pytest.raises(ApiError, match="node_unavailable"):
        await nodes.ask(tls)


async def test_a_node_shows_its_own_certificate_where_it_passes_a_request_on(nodes: Nodes) -> None:
    url = f"https://127.0.0.1:{nodes.port}/hello"
    for tls, is_let_in in ((shown(nodes, nodes.edges), True), (ClientCertificate(nodes.authority.file), False)):
        async with Forwarder.opened(tls.context) as forwarder:
            try:
                async with forwarder._session.get(url) as answer:
                    assert (answer.status, is_let_in) == (200, True)
            except (aiohttp.ClientError, OSError):
                assert not is_let_in


async def test_a_certificate_for_another_name_is_not_trusted(nodes: Nodes) -> None:
    nodes.pair.take(nodes.authority.issue("other", "other.internal"))
    nodes.certificate.reload()
    with pytest.raises(ApiError, match="node_unavailable"):
        await nodes.ask(shown(nodes, nodes.edges).context)


async def test_after_a_reload_an_unknown_client_is_still_refused(nodes: Nodes) -> None:
    nodes.pair.take(nodes.authority.issue("next", "127.0.0.1"))
    nodes.certificate.reload()
    assert await nodes.ask(shown(nodes, nodes.edges).context) == 200
    with pytest.raises(ApiError, match="node_unavailable"):
        await nodes.ask(ClientCertificate(nodes.authority.file).context)


async def test_an_edge_shows_its_new_certificate_and_keeps_the_old_one_if_that_is_broken(
    nodes: Nodes, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").issue("edge", "edge.internal")
    tls = ClientCertificate(nodes.authority.file, stranger.cert_file, stranger.key_file)
    with pytest.raises(ApiError):
        await nodes.ask(tls.context)
    good = nodes.edges.issue("good", "edge.internal")
    stranger.take(good)
    tls.reload()
    assert await nodes.ask(tls.context) == 200
    stranger.key_file.write_text("broken")
    tls.reload()
    assert await nodes.ask(tls.context) == 200


async def test_a_pair_that_changes_while_it_is_read_leaves_one_that_works(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, renewed = nodes.edges.issue("edge", "edge.internal"), nodes.edges.issue("renewed", "edge.internal")
    tls = ClientCertificate(nodes.authority.file, pair.cert_file, pair.key_file)
    load, loads = ssl.SSLContext.load_cert_chain, 0

    def renew_meanwhile(context: ssl.SSLContext, *files: Any) -> None:
        nonlocal loads
        loads += 1
        load(context, *files)
        pair.cert_file.write_bytes(renewed.cert_file.read_bytes())  # the key comes a moment later

    with monkeypatch.context() as slow:
        slow.setattr(ssl.SSLContext, "load_cert_chain", renew_meanwhile)
        tls.reload()
    assert loads == 2
    assert await nodes.ask(tls.context) == 200


def test_a_key_with_a_password_is_refused_instead_of_asked_about(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("x", "x.internal")
    key = load_pem_private_key(pair.key_file.read_bytes(), None)
    locked = Pair(pair.cert_file, tmp_path / "locked.pem")
    locked.key_file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(BadCertificate, match="has a password"):
        ServerCertificate(locked.cert_file, locked.key_file)


def test_nothing_below_tls_1_2_is_spoken_in_either_direction(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("x", "x.internal")
    contexts = [
        ServerCertificate(pair.cert_file, pair.key_file).context,
        ClientCertificate(authority.file).context,
        ClientCertificate(None).context,
    ]
    assert [context.minimum_version for context in contexts] == [ssl.TLSVersion.TLSv1_2] * 3
    assert [context.verify_mode for context in contexts[1:]] == [ssl.CERT_REQUIRED] * 2
    assert all(context.check_hostname for context in contexts[1:])
