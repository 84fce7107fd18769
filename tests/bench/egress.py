"""What the guard adds to a fetch beyond the network: `python -m tests.bench.egress`.

The lab in a process of its own serves one small image over TLS; three clients fetch it in turn, each time on a new
connection, with the same roots: asyncio with as little code as it takes, aiohttp, and the guard with all that it
checks. Each asks the lab's DNS for both kinds of addresses first, the first two with packets that lie ready.
"""

from __future__ import annotations

import asyncio
import io
import logging
import multiprocessing
import platform
import socket
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import aiohttp
import psutil
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult
from dnslib import DNSRecord

from node.images.fetch import EgressGuard
from node.images.tls import build_tls_context
from node.settings import EgressSection
from shared.log import JsonFormatter
from tests.integration.egress.behaviours import PNG
from tests.integration.egress.conftest import lab_settings
from tests.integration.egress.lab import GOOD, running_lab
from tests.unmetered import Unmetered

ROUNDS = 1000
WARM_UP = 100
LIMIT_MS = 3.0
HOST, PATH = "ok.lab.example", "/ok.png"
Fetch = Callable[[], Awaitable[bytes]]


def serve(folder: Path, pipe: Connection) -> None:
    """Run the lab until somebody speaks, or leaves."""
    with running_lab(folder) as lab:
        lab.names.resolver.load({HOST: {"A": [GOOD]}})
        pipe.send((lab_settings(lab), lab.port))
        pipe.poll(None)


class Questions(asyncio.DatagramProtocol):
    """The two questions of a lookup and the wait for their answers: what DNS takes of the network."""

    def __init__(self) -> None:
        self._packed = [DNSRecord.question(HOST, kind).pack() for kind in ("A", "AAAA")]
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._transport: asyncio.DatagramTransport | None = None

    @classmethod
    async def open(cls, settings: EgressSection) -> Questions:
        """Connected to the lab's server."""
        host, _, port = settings.nameservers[0].rpartition(":")
        loop = asyncio.get_running_loop()
        _, questions = await loop.create_datagram_endpoint(cls, remote_addr=(host, int(port)))
        return questions

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to send."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        """One answer."""
        self._answers.put_nowait(data)

    async def ask(self) -> None:
        """Both at once."""
        assert self._transport is not None
        for packed in self._packed:
            self._transport.sendto(packed)
        for _ in self._packed:
            await self._answers.get()


def bare(settings: EgressSection, port: int, questions: Questions) -> Fetch:
    """Streams of asyncio: connect, ask, read to the end."""
    context = build_tls_context(settings.ca_file)
    question = f"GET {PATH} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()

    async def fetch() -> bytes:
        await questions.ask()
        reader, writer = await asyncio.open_connection(GOOD, port, ssl=context, server_hostname=HOST)
        writer.write(question)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        data = await reader.readexactly(length)
        writer.transport.abort()
        return data

    return fetch


class _Known(AbstractResolver):
    """The address; the questions have been asked."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        """One address."""
        await self._questions.ask()
        return [ResolveResult(hostname=host, host=GOOD, port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        """Nothing to end."""


async def of_aiohttp(settings: EgressSection, port: int, questions: Questions, held: AsyncExitStack) -> Fetch:
    """aiohttp's client, which reads HTTP in C, with a new connection each time."""
    connector = aiohttp.TCPConnector(
        ssl=build_tls_context(settings.ca_file), resolver=_Known(questions), force_close=True, use_dns_cache=False
    )
    session = await held.enter_async_context(aiohttp.ClientSession(connector=connector))

    async def fetch() -> bytes:
        async with session.get(f"https://{HOST}:{port}{PATH}") as response:
            return await response.read()

    return fetch


def of_guard(settings: EgressSection, port: int) -> Fetch:
    """As a request does it."""
    guard = EgressGuard(settings)
    url = f"https://{HOST}{PATH}" if port == 443 else f"https://{HOST}:{port}{PATH}"

    async def use(url: str, data: bytes) -> bytes:
        return data

    async def fetch() -> bytes:
        return (await guard.fetch_all([url], use, Unmetered()))[url]

    return fetch


async def measure(settings: EgressSection, port: int) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds on the clock and of CPU, by client, taken in turn."""
    async with AsyncExitStack() as held:
        questions = await Questions.open(settings)
        clients = {
            "asyncio": bare(settings, port, questions),
            "aiohttp": await of_aiohttp(settings, port, questions, held),
            "the guard": of_guard(settings, port),
        }
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
        for number in range(WARM_UP + ROUNDS):
            for name, fetch in clients.items():
                cpu_s, begun_s = time.process_time(), time.perf_counter()
                data = await fetch()
                taken = (time.perf_counter() - begun_s) * 1000, (time.process_time() - cpu_s) * 1000
                assert data == PNG
                if number >= WARM_UP:
                    samples[name].append(taken)
        return samples


def show(samples: dict[str, list[tuple[float, float]]]) -> None:
    """A table, and what the guard adds to the least that a fetch takes."""
    print("\n| client | median | p99 | CPU, median |\n| --- | --- | --- | --- |")
    medians: dict[str, float] = {}
    for name, taken in samples.items():
        clock_ms, cpu_ms = (list(values) for values in zip(*taken, strict=True))
        medians[name] = statistics.median(clock_ms)
        p99 = statistics.quantiles(clock_ms, n=100)[98]
        print(f"| {name} | {medians[name]:.2f} ms | {p99:.2f} ms | {statistics.median(cpu_ms):.2f} ms |")
    for other in ("asyncio", "aiohttp"):
        print(f"beyond {other}: {medians['the guard'] - medians[other]:.2f} ms (at most {LIMIT_MS:.0f} ms)")


def main() -> None:
    """Serve, measure, print."""
    log = logging.StreamHandler(io.StringIO())
    log.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[log])
    print(f"{platform.platform()}, Python {platform.python_version()}, {psutil.cpu_count()} cores, {ROUNDS} rounds")
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        server: Any = context.Process(target=serve, args=(Path(folder), there))
        server.start()
        settings, port = here.recv()
        try:
            show(uvloop.run(measure(settings, port)))
        finally:
            here.close()
            there.close()
            server.join(20)


if __name__ == "__main__":
    main()
