"""A little internet on loopback: DNS, HTTPS servers of several kinds, and canaries that nobody may touch.

It runs in a thread with a loop of its own, so that what its servers do never counts as a stall of the guard.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import random
import re
import socket
import ssl
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import trustme

from tests.integration.egress.behaviours import BEHAVIOURS, NOT_FOUND, Gone
from tests.integration.egress.floods import PLAIN_FLOODS, FloodServer, flood_plainly
from tests.integration.egress.names_server import NamesServer

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
NETWORK = "127.0.7.0/24"
NAMES_HOST = "127.0.7.53"
GOOD, OTHER_NAME, UNKNOWN_ISSUER, EXPIRED, PLAIN, MUTE, TLS11 = (f"127.0.7.{n}" for n in (1, 2, 3, 4, 5, 6, 8))
NOT_YET, COMMON_NAME_ONLY, ADDRESS_ONLY, TOO_WIDE, CLOSES, SLOW_TLS = (f"127.0.7.{n}" for n in range(20, 26))
FLOOD = "127.0.7.30"
PLAIN_FLOOD_HOSTS = {name: f"127.0.7.{number}" for number, name in enumerate(PLAIN_FLOODS, 40)}
_NAME = r"[a-z0-9.-]+\.(?:lab|nip)\.example"
_HOST = re.compile(rf"(//{_NAME})(?=[/?#]|$)|(%2F%2F{_NAME})(?=%2F|%23|$)", re.IGNORECASE)


@dataclass
class Lab:
    """What tests see of it.

    Attributes:
        requests: the heads that servers got.
        hellos: the names in TLS handshakes.
        accepted: the servers and canaries that got a connection, even one that says nothing.
        touched: the canaries among them.
        answering: how many requests are being answered now.
    """

    port: int
    names: NamesServer
    ca_file: Path
    canaries: list[str]
    touched: list[str] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    hellos: list[str | None] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    answering: int = 0

    def forget(self) -> None:
        """Begin another test."""
        self.names.resolver.load({})
        for seen in (self.touched, self.requests, self.hellos, self.accepted):
            seen.clear()

    @property
    def is_quiet(self) -> bool:
        """Whether nobody spoke to anything here, DNS included."""
        return not self.names.resolver.asked and not self.accepted

    def url(self, text: str) -> str:
        """A URL of a case, as it is where the servers have 443; else with their port in it."""
        if self.port == 443:
            return text
        return _HOST.sub(lambda at: f"{at[1]}:{self.port}" if at[1] else f"{at[2]}%3A{self.port}", text)


def own_addresses() -> list[str]:
    """Every address of this machine but those that only count on one link."""
    found = {"127.0.0.1", "127.0.0.9", "127.0.0.53", "::1"}
    for entries in psutil.net_if_addrs().values():
        found |= {
            entry.address
            for entry in entries
            if entry.family in (socket.AF_INET, socket.AF_INET6) and not entry.address.startswith("fe80")
        }
    return sorted(found)


@contextlib.contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    """Port 443 where this process may have it, so that the corpus is used as it is; else any."""
    ca = trustme.CA()
    ca_file = folder / "ca.pem"
    ca.cert_pem.write_to_path(str(ca_file))
    contexts = _contexts(ca)
    names = NamesServer(NAMES_HOST)
    canaries = own_addresses()
    port, listeners = _listeners(
        [*contexts, FLOOD, PLAIN, MUTE, CLOSES, SLOW_TLS, *PLAIN_FLOOD_HOSTS.values()], canaries
    )
    flood_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("*.lab.example").configure_cert(flood_context)
    floods = FloodServer(flood_context, folder / "flood-keys")
    lab = Lab(port, names, ca_file, canaries)
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(_serve(lab, listeners, contexts, floods, ready, stop))
    )
    thread.start()
    assert ready.wait(60)
    try:
        yield lab
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
        names.close()


def _contexts(ca: trustme.CA) -> dict[str, ssl.SSLContext]:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    wildcards = ("*.lab.example", "*.nip.example")
    leaves = {
        GOOD: ca.issue_cert(*wildcards),
        OTHER_NAME: ca.issue_cert("other.example", "127.0.7.2"),
        UNKNOWN_ISSUER: trustme.CA().issue_cert(*wildcards),
        EXPIRED: ca.issue_cert(*wildcards, not_before=now - 10 * day, not_after=now - day),
        NOT_YET: ca.issue_cert(*wildcards, not_before=now + day, not_after=now + 10 * day),
        COMMON_NAME_ONLY: ca.issue_cert(common_name="cn-only.lab.example"),
        ADDRESS_ONLY: ca.issue_cert(ADDRESS_ONLY),
        TOO_WIDE: ca.issue_cert("*.example"),
        TLS11: ca.issue_cert(*wildcards),
    }
    contexts = {}
    for host, leaf in leaves.items():
        contexts[host] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        leaf.configure_cert(contexts[host])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        contexts[TLS11].set_ciphers("ALL:@SECLEVEL=0")
        contexts[TLS11].minimum_version = ssl.TLSVersion.TLSv1
        contexts[TLS11].maximum_version = ssl.TLSVersion.TLSv1_1
    return contexts


def _listeners(servers: list[str], canaries: list[str]) -> tuple[int, dict[str, socket.socket]]:
    """All of them on one port."""
    for port in (443, *random.sample(range(20_000, 30_000), 20)):
        opened: dict[str, socket.socket] = {}
        try:
            for host in (*servers, *canaries):
                opened[host] = socket.create_server(
                    (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
                )
                opened[host].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        except OSError:
            for listener in opened.values():
                listener.close()
        else:
            return port, opened
    raise RuntimeError("no port is free on all the addresses of the lab")


class _Servers:
    """The handlers of the lab's connections, in its loop."""

    def __init__(self, lab: Lab, floods: FloodServer) -> None:
        self._lab, self._floods = lab, floods
        self._others: dict[str, Handler] = {
            PLAIN: self.plain,
            MUTE: self.mute,
            CLOSES: self.close,
            SLOW_TLS: self.slow_tls,
            FLOOD: self.flood,
            **{
                host: functools.partial(self.flood_plainly, PLAIN_FLOODS[name])
                for name, host in PLAIN_FLOOD_HOSTS.items()
            },
        }

    def of(self, host: str) -> Handler:
        """What listens at an address without TLS: a server of the wrong kind, or a canary."""

        async def canary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._lab.touched.append(host)
            await finish(writer)

        return self._others.get(host, canary)

    async def https(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(Gone, OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self._lab.requests.append(head)
            path, _, query = head.split(b" ", 2)[1].decode("latin-1").partition("?")
            self._lab.answering += 1
            try:
                await BEHAVIOURS.get(path, NOT_FOUND)(writer, query)
            finally:
                self._lab.answering -= 1
        await finish(writer)

    async def plain(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await finish(writer)

    async def mute(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(65_536):
                pass
        await finish(writer)

    async def close(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def slow_tls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"\x16\x03\x03\x40\x00")  # a handshake record of 16 KiB, a byte at a time
            while not writer.transport.is_closing() and not reader.at_eof():
                writer.write(b"\0")
                await asyncio.sleep(0.05)
        await finish(writer)

    async def flood(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(Gone, OSError):
            self._lab.answering += 1
            try:
                await self._floods.serve(reader, writer, self._lab.requests.append)
            finally:
                self._lab.answering -= 1
        await finish(writer)

    async def flood_plainly(self, piece: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(Gone, OSError):
            await flood_plainly(reader, writer, piece)
        await finish(writer)

    def note_hello(self, sock: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        self._lab.hellos.append(name)


async def finish(writer: asyncio.StreamWriter) -> None:
    """Close in order, whatever the other side does."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _serve(
    lab: Lab,
    listeners: dict[str, socket.socket],
    contexts: dict[str, ssl.SSLContext],
    floods: FloodServer,
    ready: threading.Event,
    stop: asyncio.Event,
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)  # of aborted handshakes
    handlers = _Servers(lab, floods)

    def accept(host: str, handler: Handler) -> asyncio.StreamReaderProtocol:
        """As `asyncio.start_server` does; this is called for each connection, before its TLS."""
        lab.accepted.append(host)
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), handler)

    servers = []
    for host, listener in listeners.items():
        context = contexts.get(host)
        if context:
            context.sni_callback = handlers.note_hello
        make = functools.partial(accept, host, handlers.https if context else handlers.of(host))
        servers.append(await loop.create_server(make, sock=listener, ssl=context))
    ready.set()
    await stop.wait()
    for server in servers:
        server.close()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.05)
