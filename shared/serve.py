"""Bind, serve, and stop gracefully.

Decides what happens between SIGTERM and the end of a process, and at SIGHUP. Must not know what is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from shared.http_server import ContractRunner
from shared.tls import ServerCertificate
from shared.web import STOPPING, Render


class CannotListen(Exception):
    """A port can't be bound; the message is one sentence for an operator."""


@dataclass(frozen=True, slots=True)
class Site:
    """An application, where it listens, in which shape it refuses what is not HTTP, and with which TLS, if any."""

    app: web.Application
    render: Render
    host: str
    port: int
    certificate: ServerCertificate | None = None


@contextlib.asynccontextmanager
async def serving(
    sites: list[Site], *, drain_s: float, keepalive_s: float = 75, on_hangup: Sequence[Callable[[], None]] = ()
) -> AsyncIterator[list[str]]:
    """Serve while the body runs; then stop listening, let running requests end for up to `drain_s`, and cancel them.

    What is yielded is where each site listens.

    SIGHUP has certificates read again, and `on_hangup` called, and does nothing once it stops; without either it is
    left alone.

    Raises:
        CannotListen: an address is taken or not ours.
    """
    hangups = [*(site.certificate.reload for site in sites if site.certificate is not None), *on_hangup]
    _hear_hangups(hangups)
    listens: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        for site in sites:
            runner = ContractRunner(site.app, site.render, keepalive_timeout=keepalive_s, shutdown_timeout=drain_s)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            try:
                context = None if site.certificate is None else site.certificate.context
                await web.TCPSite(runner, site.host, site.port, ssl_context=context).start()
            except OSError as error:
                raise CannotListen(_why(site, error)) from None
            listens.append(_url_of(site, port=runner.addresses[0][1]))
        try:
            yield listens
        finally:
            hangups.clear()


def _hear_hangups(actions: Sequence[Callable[[], None]]) -> None:
    """For as long as the loop lives: what a process still does after it has served must not end by it either."""

    def act() -> None:
        for action in actions:
            action()

    if actions:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, act)


def _url_of(site: Site, *, port: int) -> str:
    """With the port that the system chose, where it was to choose."""
    host = f"[{site.host}]" if ":" in site.host else site.host
    return f"{'http' if site.certificate is None else 'https'}://{host}:{port}"


def _why(site: Site, error: OSError) -> str:
    reason = "is already in use" if error.errno == errno.EADDRINUSE else f"can't be used: {error.strerror}"
    return f"{site.host}:{site.port} {reason}"


async def wait_for_stop(sites: list[Site], on_signal: Callable[[signal.Signals], None]) -> None:
    """Return at the first SIGTERM or SIGINT, after `on_signal`. From then on each answer closes its connection."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stopping(number: signal.Signals) -> None:
        if stop.is_set():
            return
        for site in sites:
            site.app[STOPPING].is_on = True
        on_signal(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping, number)
    await stop.wait()
