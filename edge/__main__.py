"""`python -m edge`: reads the environment, builds the edge and runs it until SIGTERM or SIGINT.

Exit codes: 0 stopped as asked, 1 can't run (a port, the signing key), 2 settings at fault.
"""

from __future__ import annotations

import os
import sys
import time

import uvloop

from edge.app import EdgeReadiness, build_edge_app
from edge.cluster import Cluster
from edge.identity import LOOKUP_CONNECTIONS, opened_identity
from edge.proxy import Proxy
from edge.registry import Registry
from edge.routing import Router
from edge.settings import EdgeSettings
from edge.signing import BadSigningKey, load_signing_key
from edge.upstream import NodeClient
from shared.log import set_up_logging
from shared.node_hosts import NodeHosts
from shared.node_token import SigningKey
from shared.operator import build_operator_app
from shared.redis import connect_redis
from shared.serve import CannotListen, Site, serving, wait_for_stop
from shared.settings import SettingsError, config_tables, load_settings
from shared.web import render_openai, render_problem


async def run_edge(settings: EdgeSettings, signing_key: SigningKey) -> None:
    """Serve until a signal comes.

    Raises:
        CannotListen: a port is taken.
    """
    edge = settings.edge
    redis = connect_redis(settings.redis.url)
    lookups = connect_redis(settings.redis.url, max_connections=LOOKUP_CONNECTIONS)
    cluster = Cluster(edge.nodes, NodeHosts(edge.node_hosts), time.monotonic)
    async with (
        redis,
        lookups,
        opened_identity(redis, lookups, edge, time.monotonic, time.time) as identity,
        Registry(redis, cluster, time.monotonic).following(),
        NodeClient.opened(edge, cluster) as client,
    ):
        readiness = EdgeReadiness(redis, identity.invalidations, cluster)
        proxy = Proxy(identity.authenticator, Router(cluster), client, signing_key, edge, time.time)
        sites = [
            Site(build_operator_app(readiness.check), render_problem, edge.operator_host, edge.operator_port),
            Site(build_edge_app(proxy, identity), render_openai, edge.host, edge.port),
        ]
        async with readiness.durability.watching(), serving(sites, drain_s=edge.drain_s):
            await wait_for_stop(readiness.stop)


def main() -> None:
    """Run the edge; what an operator has to mend is told in one sentence."""
    set_up_logging()
    try:
        settings = load_settings(EdgeSettings, os.environ, config_tables(os.environ))
        uvloop.run(run_edge(settings, load_signing_key(settings.edge.signing_key_file)))
    except SettingsError as error:
        _give_up(f"the settings are wrong:\n{error}", 2)
    except (CannotListen, BadSigningKey) as error:
        _give_up(str(error), 1)


def _give_up(reason: str, code: int) -> None:
    sys.stderr.write(f"b3os edge: {reason}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
