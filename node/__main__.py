"""`python -m node`: the composition root of a node, and the only reader of its environment."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import gc
import os
import signal
import sys
import time
from pathlib import Path

import uvloop

from node.admission import Admission
from node.app import build_node_app, build_node_operator_app
from node.card import build_card
from node.catalog.gpu import has_nvidia_gpu
from node.catalog.served import ServedModel, resolve_model, scripted_model
from node.engine.port import Engine
from node.engine.scripted import start_scripted_engine
from node.engine.supervisor import Supervisor
from node.forward import Forwarder
from node.gate import Gate, load_edge_keys
from node.hearing import Hearing, ask_registry
from node.heartbeat import Pulse
from node.images.intake import open_intake
from node.limits.counted import LimitCounts
from node.limits.opening import open_limits
from node.limits.spool_owner import BadSpool
from node.metrics import observing_node
from node.namesake import IdTaken, claim_id
from node.peers import Peers
from node.settings import NodeSection, NodeSettings
from shared.life import Life
from shared.log import set_up_logging
from shared.node_hosts import NodeHosts
from shared.redis import connect_redis
from shared.serve import CannotListen, Site, serving, wait_for_stop
from shared.settings import SettingsError, config_tables, load_settings
from shared.tls import BadCertificate, ClientCertificate, ServerCertificate
from shared.tracing import open_tracing
from shared.web import render_anthropic, render_problem

SWITCH_S = 0.001
"""How long the event loop waits for a thread that reads a large body. Python's 5 ms add up, once for each answer."""
ENDINGS_S = 5.0
"""What handlers have for their last words and bills, once the engine is gone."""


def main() -> None:
    """Run until SIGTERM or SIGINT; what keeps it from starting is one sentence on standard error."""
    set_up_logging()
    sys.setswitchinterval(SWITCH_S)
    try:
        settings = load_settings(NodeSettings, os.environ, config_tables(os.environ))
        uvloop.run(run(settings, Path(os.environ.get("B3OS_HOME", ".b3os"))))
    except SettingsError as error:
        sys.exit(f"b3os node: the settings are wrong:\n{error}")
    except (CannotListen, BadCertificate, BadSpool, IdTaken) as error:
        sys.exit(f"b3os node: {error}")
    # An engine that is still loading lives in a thread that nothing can interrupt; all else has ended in order.
    sys.stderr.flush()
    os._exit(0)


async def run(settings: NodeSettings, home: Path) -> None:
    """Serve, start the engine beside it, and stop in the reverse order.

    Raises:
        BadCertificate, BadSpool, CannotListen, IdTaken, SettingsError: before anything runs.
    """
    section, life = settings.node, Life(time.monotonic)
    certificates = _certificates_of(section)
    model = _served_model(settings, home / "models")
    towards_peers = _towards_peers(section)
    gate = Gate(section.id, load_edge_keys(section.edge_keys_file))
    supervisor = Supervisor(
        lambda: _start_engine(section.engine, model),
        start_s=section.engine_start_s,
        silence_s=section.engine_silence_s,
    )
    spool = home / "spool" / section.id
    card = functools.partial(build_card, model, supervisor, int(time.time()))
    counts = LimitCounts()
    async with (
        open_intake(settings.egress) as images,
        open_tracing(settings.tracing, "b3os-node", trusts_callers=True) as tracing,
        open_limits(settings.redis.url, spool, section.id, counts) as (desk, refusals),
        Forwarder.opened(
            None if towards_peers is None else towards_peers.context, tracing.client_traces()
        ) as forwarder,
        connect_redis(settings.redis.url, max_connections=4) as registry,
    ):
        ask = functools.partial(ask_registry, registry)
        await claim_id(ask, section.id, section.told_url(), time.monotonic)
        images.warm_up()
        peers = Peers(section.id, NodeHosts(section.peer_hosts), time.monotonic, ask)
        admission = Admission(section.id, model, desk, refusals)
        app = build_node_app(
            node_id=section.id,
            model=model,
            gate=gate,
            admission=admission,
            images=images,
            supervisor=supervisor,
            peers=peers,
            forwarder=forwarder,
            card=card,
        )
        pulse = Pulse(registry, section.id, section.told_url(), card, supervisor, time.monotonic)
        tracing.attach(app)
        async with observing_node(app, images, supervisor, forwarder, counts, certificates) as collectors:
            operator_app = build_node_operator_app(
                node_id=section.id,
                model=model,
                supervisor=supervisor,
                peers=peers,
                told=lambda: pulse.told,
                collectors=collectors,
            )
            sites = [
                Site(app, render_anthropic, section.host, section.port, *certificates),
                Site(operator_app, render_problem, section.operator_host, section.operator_port),
            ]
            _calm_collector()
            hangups = [] if towards_peers is None else [towards_peers.reload]
            running = serving(sites, drain_s=ENDINGS_S, on_hangup=hangups)

            def stop(number: signal.Signals) -> None:
                life.note_signal(number, supervisor.handover.under_way, section.drain_s)
                supervisor.drain()

            is_bound = asyncio.Event()
            beating = pulse.beating(is_bound)
            async with beating, Hearing(registry, peers).listening(), running as (listens, operator_listens):
                is_bound.set()
                life.note_start(
                    node=section.id,
                    boot=pulse.boot,
                    model=model.served_id,
                    engine=section.engine,
                    listens=listens,
                    operator_listens=operator_listens,
                    told_url=section.told_url(),
                )
                supervisor.start()
                await wait_for_stop(sites, stop)
                # It listens still: what comes is refused as not begun with, for the edge to take elsewhere.
                cut = await supervisor.drained(section.drain_s)
                desk.stop()  # whoever is cancelled from here on has not left
    await supervisor.stop()
    life.note_end(cut)


def _calm_collector() -> None:
    """What is loaded stays, and a large request is no reason to look for garbage a hundred times while reading it.

    Asked for again with each engine: to look through vLLM and torch takes 0.4 s, in which nothing else goes on.
    """
    gc.unfreeze()
    gc.collect()
    _give_back_memory()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _give_back_memory() -> None:
    """What was freed, an engine before this one for instance; glibc's allocator keeps it otherwise."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _towards_peers(section: NodeSection) -> ClientCertificate | None:
    """None where nothing is set: then aiohttp's own context is as good, and there already."""
    if section.peer_ca_file is None and section.tls_cert_file is None:
        return None
    return ClientCertificate(section.peer_ca_file, section.tls_cert_file, section.tls_key_file)


def _certificates_of(section: NodeSection) -> list[ServerCertificate]:
    """One, or none without TLS."""
    if section.tls_cert_file is None or section.tls_key_file is None:
        return []
    return [ServerCertificate(section.tls_cert_file, section.tls_key_file, section.client_ca_file)]


def _served_model(settings: NodeSettings, models_dir: Path) -> ServedModel:
    if settings.node.engine == "scripted":
        return scripted_model(settings.model)
    return resolve_model(settings.model, has_gpu=has_nvidia_gpu(), models_dir=models_dir)


async def _start_engine(kind: str, model: ServedModel) -> Engine:
    if kind == "scripted":
        return await start_scripted_engine(model)
    from node.engine.vllm_engine import start_vllm_engine

    engine = await start_vllm_engine(model)
    _calm_collector()
    return engine


if __name__ == "__main__":
    main()
