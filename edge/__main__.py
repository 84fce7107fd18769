"""`python -m edge`: reads the environment, builds the edge and runs it until SIGTERM or SIGINT.

Exit codes: 0 stopped as asked, 1 can't run (a port, the signing key, a certificate), 2 settings at fault.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import uvloop

from edge.app import EdgeReadiness, build_edge_app
from edge.cluster import Cluster
from edge.departures import Departures
from edge.hsts import build_hsts
from edge.identity import LOOKUP_CONNECTIONS, opened_identity
from edge.metrics import observing_edge
from edge.proxy import Proxy
from edge.registry import Registry
from edge.routing import Router
from edge.settings import EdgeSection, EdgeSettings
from edge.signing import BadSigningKey, load_signing_key
from edge.upstream import NodeClient
from shared.life import Life
from shared.log import set_up_logging
from shared.node_hosts import NodeHosts
from shared.node_token import SigningKey
from shared.operator import build_operator_app
from shared.redis import connect_redis
from shared.serve import CannotListen, Site, serving, wait_for_stop
from shared.settings import SettingsError, config_tables, load_settings
from shared.tls import BadCertificate, ClientCertificate, ServerCertificate
from shared.tracing import open_tracing
from shared.web import render_openai, render_problem

LAST_WORDS_S = 5.0
"""What streams that are cut have for their last event."""


async def run_edge(settings: EdgeSettings, signing_key: SigningKey) -> None:
    """Serve until a signal comes.

    Raises:
        CannotListen: a port is taken.
        BadCertificate: files for TLS can't be used.
        SettingsError: something that settings ask for is not installed.
    """
    edge, life = settings.edge, Life(time.monotonic)
    certificate = _own_certificate(edge)
    towards_nodes = _towards_nodes(edge)
    redis = connect_redis(settings.redis.url)
    lookups = connect_redis(settings.redis.url, max_connections=LOOKUP_CONNECTIONS)
    cluster = Cluster(edge.nodes, NodeHosts(edge.node_hosts), time.monotonic)
    registry = Registry(redis, cluster, time.monotonic)
    async with (
        redis,
        lookups,
        opened_identity(redis, lookups, edge, time.monotonic, time.time) as identity,
        open_tracing(settings.tracing, "b3os-edge", trusts_callers=settings.tracing.trusts_callers) as tracing,
        registry.following(),
        NodeClient.opened(
            edge, cluster, None if towards_nodes is None else towards_nodes.context, tracing.client_traces()
        ) as client,
    ):
        readiness = EdgeReadiness(redis, identity.invalidations, cluster)
        departures = Departures()
        proxy = Proxy(
            identity.authenticator, Router(cluster), registry.look_again, client, signing_key, edge, time.time
        )
        app = build_edge_app(proxy, identity, departures)
        tracing.attach(app)
        certificates = [] if certificate is None else [certificate]
        if certificates:
            app.on_response_prepare.append(build_hsts(identity.hosts))
        observing = observing_edge(app, identity, proxy, cluster, client, readiness.durability, certificates)
        async with observing as collectors:
            operator_app = build_operator_app(readiness.check, collectors)
            sites = [
                Site(operator_app, render_problem, edge.operator_host, edge.operator_port),
                Site(app, render_openai, edge.host, edge.port, certificate),
            ]
            hangups = [] if towards_nodes is None else [towards_nodes.reload]
            stop_s = edge.drain_s + LAST_WORDS_S
            running = serving(sites, drain_s=stop_s, keepalive_s=edge.keepalive_s, on_hangup=hangups)

            def stop(number: signal.Signals) -> None:
                life.note_signal(number, departures.under_way, edge.lame_duck_s + edge.drain_s)
                readiness.stop()

            async with readiness.durability.watching(), running as (operator_listens, listens):
                readiness.start()
                life.note_start(listens=listens, operator_listens=operator_listens, nodes=cluster.there)
                await wait_for_stop(sites, stop)
                await asyncio.sleep(edge.lame_duck_s)
                asyncio.get_running_loop().call_later(edge.drain_s, departures.cut)
    life.note_end(departures.were_cut)


def _own_certificate(edge: EdgeSection) -> ServerCertificate | None:
    if edge.tls_cert_file is None or edge.tls_key_file is None:
        return None
    return ServerCertificate(edge.tls_cert_file, edge.tls_key_file)


def _towards_nodes(edge: EdgeSection) -> ClientCertificate | None:
    """None where nothing is set: then aiohttp's own context is as good, and there already."""
    files = edge.node_ca_file, edge.node_client_cert_file, edge.node_client_key_file
    return ClientCertificate(*files) if any(files) else None


def main() -> None:
    """Run the edge; what an operator has to mend is told in one sentence."""
    set_up_logging()
    try:
        settings = load_settings(EdgeSettings, os.environ, config_tables(os.environ))
        uvloop.run(run_edge(settings, load_signing_key(settings.edge.signing_key_file)))
    except SettingsError as error:
        _give_up(f"the settings are wrong:\n{error}", 2)
    except (CannotListen, BadSigningKey, BadCertificate) as error:
        _give_up(str(error), 1)


def _give_up(reason: str, code: int) -> None:
    sys.stderr.write(f"b3os edge: {reason}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
